"""From what is wanted to a config: values by the checkout's own fields, YAML, its file's name."""
