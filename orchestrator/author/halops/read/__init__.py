"""The reader: a checkout's facts by its syntax trees, nothing imported and nothing run."""
