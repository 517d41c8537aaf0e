def _move_to_front(names, first):
    return [n for n in names if n == first] + [n for n in names if n != first]
