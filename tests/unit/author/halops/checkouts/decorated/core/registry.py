OP_REGISTRY = {}


class Backends:
    """Backends of one scenario, filled by a decorator."""

    def __init__(self):
        self._by_name = {}

    def register(self, *names):
        def wrap(function):
            for name in names:
                self._by_name[name] = function
            return function

        return wrap

    def table(self):
        return dict(self._by_name)


def op(name):
    def wrap(cls):
        OP_REGISTRY[name] = cls
        return cls

    return wrap
