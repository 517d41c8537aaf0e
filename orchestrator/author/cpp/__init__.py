"""Read C++ and CUDA sources: where operators are registered and implemented, and what they do.

``lexical`` and ``preprocess`` make plain C++ of a file, ``project`` holds the files, ``functions``
finds and parses single functions, ``registrations`` finds ``m.def`` and ``m.impl``, ``types`` turns
C++ types and defaults into those of schemas, ``effects`` concludes what a function writes to,
``checks`` and ``dispatch`` what it requires, and ``operators`` puts an operator together. Functions
are cut out of the text before they are parsed, so that what cannot be parsed hides nothing else.
"""
