"""How each library is called; scenarios' ``adapt_*`` say first what it cannot do."""
