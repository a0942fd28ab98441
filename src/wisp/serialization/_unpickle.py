"""A reader of pickles that cannot be talked into anything.

Python's own unpickler calls whatever a file names, allocates what a file asks for and recurses as deep as a file
nests. This one builds plain values itself, asks its owner about every name, and keeps what a file makes it allocate in
proportion to the size of the file. It reads protocols 0 to 5 as far as PyTorch's files use them.
"""

import codecs
import inspect
import struct
import types
from collections import Counter, OrderedDict, defaultdict, deque
from pickle import UnpicklingError

_KEY_NODES = 1000  # how many values a key of a dict or an element of a set may consist of
_SAME_HASH = 100  # how many keys of one container may have the same hash
_CHOSEN = (1 << 61) - 1  # numbers below it have hashes of their own; a file can give others, and tuples, any hash it likes

_U16, _I32, _U32, _U64, _F64 = (struct.Struct(code) for code in ("<H", "<i", "<I", "<Q", ">d"))


# What may be done with a name, besides storing it: call it and set the state of what it gives (the user said so), or make
# an instance without calling the constructor and set its state. A function means: call that function in its stead.
TRUSTED, BLANK = "trusted", "blank"


def brief(value):
    """A value of a file as messages show it. Its repr, hash or comparison could take for ever: a file can nest one value in itself."""
    if type(value) in (str, bytes):
        return repr(value[:100])
    if type(value) is int and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    if type(value) in (int, float, complex, bool, type(None)):
        return repr(value)
    if type(value) in (tuple, list):
        return "(" + ", ".join("..." if type(item) in (tuple, list) else brief(item) for item in value[:20]) + ")"
    return f"a {type(value).__name__}"


def _told(error):
    said = error.args[0] if len(error.args) == 1 else error.args
    return said[:500] if type(said) is str else brief(said)


class _Mark:
    pass


_MARK = _Mark()


class Unpickler:
    """Reads one pickle from a seekable file.

    `find(module, name)` gives a pair: the value that a name stands for, and what may be done with it (None, TRUSTED,
    BLANK or a function); `persistent(identifier)` gives the value of a reference.
    """

    def __init__(self, file, find, persistent):
        self.file, self.find, self.persistent = file, find, persistent
        start = file.tell()
        self.end = file.seek(0, 2)
        file.seek(start)
        # Copies made by calls (list, set, encode...) may come to this many elements altogether.
        self.budget = 16 * (self.end - start) + 100_000
        self.stack, self.memo = [], {}
        self.rules = {}  # id of a value that `find` gave -> (the value, what may be done with it)
        self.open = set()  # types of the objects made so far whose state may be set
        self.hashes = {}  # id of a container -> (the container, how many of its keys have a hash)

    def load(self):
        """The value that the pickle describes."""
        try:
            return self._load()
        except (IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, struct.error) as error:
            raise UnpicklingError(
                f"the pickle in the file is damaged near byte {self.file.tell()}: {type(error).__name__}: {_told(error)}"
            ) from None

    def _load(self):
        read, table, stack = self.file.read, _TABLE, self.stack
        while True:
            code = read(1)
            if code == b".":
                value = stack.pop()
                if value is _MARK:
                    raise UnpicklingError("the pickle in the file ends within a value")
                return value
            step = table.get(code)
            if step is None:
                if not code:
                    raise EOFError("the file ends within its pickle: it is truncated")
                raise UnpicklingError(f"the pickle in the file uses the operation {code!r}, which is not allowed")
            step(self)

    # ---- input
    def bytes(self, count):
        """The next `count` bytes."""
        if count > self.end - self.file.tell():
            raise EOFError(f"the file ends within its pickle, which asks for {count} bytes: it is truncated or damaged")
        return self.file.read(count)

    def number(self, form):
        return form.unpack(self.bytes(form.size))[0]

    def line(self):
        text = self.file.readline(1 << 20)
        if not text.endswith(b"\n"):
            raise EOFError("the file ends within its pickle: it is truncated")
        return text[:-1]

    # ---- the stack
    def marked(self):
        """What lies on the stack above the last mark; removes both."""
        stack = self.stack
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is _MARK:
                items = stack[place + 1 :]
                del stack[place:]
                return items
        raise UnpicklingError("the pickle in the file is damaged: a mark is missing")

    def top(self, kind):
        value = self.stack[-1]
        if not isinstance(value, kind):
            raise UnpicklingError(f"the pickle in the file is damaged: it adds to a {type(value).__name__}")
        return value

    def charge(self, values):
        """Count what a call will copy."""
        for value in values:
            self.budget -= 1
            if hasattr(type(value), "__len__") and type(value).__module__ in ("builtins", "collections"):
                self.budget -= len(value)
        if self.budget < 0:
            raise UnpicklingError("the file makes far more values than its size explains; it is refused")

    def put(self, key):
        self.memo[key] = self.stack[-1]

    # ---- values that need care
    def check_keys(self, target, keys):
        """As the function, for keys that come to what the container has."""
        hashes = self.hashes.get(id(target), (target, {}))[1]
        check_keys(keys, hashes)
        if hashes:
            self.hashes[id(target)] = target, hashes

    def pairs(self, target, items):
        if len(items) % 2:
            raise UnpicklingError("the pickle in the file is damaged: a key has no value")
        self.check_keys(target, items[::2])
        return zip(items[::2], items[1::2])

    def update(self, items, one=False):
        target = self.stack[-1]
        if type(target) not in self.open and not isinstance(target, dict):
            raise UnpicklingError(
                f"Can only SETITEM{'' if one else 'S'} for dict, collections.OrderedDict, collections.Counter, "
                f"but the file does so for a {type(target).__name__}"
            )
        for key, value in self.pairs(target, items):
            target[key] = value

    def extend(self, items):
        target = self.stack[-1]
        if type(target) not in self.open:
            self.top((list, deque))
        for item in items:
            target.append(item)

    def add(self):
        items = self.marked()
        target = self.top(set)
        self.check_keys(target, items)
        target.update(items)

    def frozen(self):
        items = self.marked()
        check_keys(items)
        self.stack.append(frozenset(items))

    def name(self, module, name):
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnpicklingError("the pickle in the file is damaged: a name is not a text")
        value, rule = self.find(module, name)
        self.rules[id(value)] = value, rule
        self.stack.append(value)

    def rule(self, value):
        return self.rules.get(id(value), (None, None))[1]

    def reduce(self):
        args = self.stack.pop()
        function = self.stack.pop()
        self.stack.append(self.call(function, args))

    def call(self, function, args):
        """Call one of the known functions."""
        rule, name = self.rule(function), getattr(function, "__name__", repr(type(function)))
        if rule is None and self.find.is_safe(function):  # reached by getattr
            rule = TRUSTED
        if type(args) is not tuple or any(value is _MARK for value in args):
            raise UnpicklingError("the pickle in the file is damaged: a call without arguments")
        if rule is TRUSTED:
            result = function(*args)
            self.open.add(type(result))
            return result
        if rule is BLANK and not args:
            return self.blank(function)
        if not callable(rule):
            owner = getattr(function, "__self__", None)
            of = f" of {owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else ""
            raise UnpicklingError(f"the file calls {name}{of}, which may not be called unless add_safe_globals was told of it")
        self.charge(args)
        if rule is CALL:
            return self.call_with_attributes(*args)
        try:
            return rule(*args)
        except (UnpicklingError, EOFError, MemoryError):
            raise
        except Exception as error:
            raise UnpicklingError(f"the file calls {name} with arguments that it does not take: {_told(error)}") from None

    def call_with_attributes(self, function, kind, args, state):
        """A tensor that had attributes: the function that makes it, and a dict."""
        result = self.call(function, args)
        if isinstance(kind, type) and kind is not type(result):  # a subclass of Tensor
            if self.rule(kind) not in (TRUSTED, BLANK):
                raise UnpicklingError(f"the file makes a tensor of {kind.__name__}, which is not allowed")
            if not issubclass(kind, type(result)):
                raise UnpicklingError(f"the file makes a {kind.__name__} of a {type(result).__name__}")
            result = result.as_subclass(kind)
        if hasattr(kind, "__setstate__") and self.rule(kind) in (TRUSTED, BLANK):
            result.__setstate__(state)
            return result
        if type(state) is tuple and len(state) == 2:
            self.set_state(result, state)
            return result
        if type(state) is dict and all(type(key) is str for key in state):
            self.charge((state,))
            result.__dict__.update(state)
        return result

    def new(self):
        args = self.stack.pop()
        kind = self.stack.pop()
        rule = self.rule(kind)
        if rule is None and self.find.is_safe(kind):
            rule = TRUSTED
        if rule is BLANK:
            self.stack.append(self.blank(kind))
        elif rule is TRUSTED and isinstance(kind, type) and type(args) is tuple:
            result = kind.__new__(kind, *args)
            self.open.add(type(result))
            self.stack.append(result)
        else:
            self.stack.append(self.call(kind, args))

    def blank(self, kind):
        self.open.add(kind)
        return kind.__new__(kind)

    def build(self):
        """Set the state of an object."""
        state, target = self.stack.pop(), self.stack[-1]
        kind = type(target)
        if kind in self.open:
            self.set_state(target, state)
        elif kind in (OrderedDict, defaultdict, Counter) and type(state) is dict:
            self.charge((state,))
            target.__dict__.update({key: value for key, value in state.items() if type(key) is str})
        elif (finish := next((rule for base, rule in self.finishers.items() if isinstance(target, base)), None)) is not None:
            self.charge(state if isinstance(state, tuple) else (state,))
            finish(target, state)
        else:
            raise UnpicklingError(f"the file sets the state of a {kind.__name__}, which is not allowed")

    def set_state(self, target, state):
        """Whoever takes a tuple for a dict asks for the hash of what is in it: it may not nest many, or deeply."""
        level, depth = [state], 0
        while level:
            depth += 1
            if depth > _KEY_NODES:
                raise UnpicklingError("the state of an object in the file is nested too deeply")
            self.charge(level)
            level = [value for values in level if isinstance(values, (tuple, frozenset)) for value in values]
        _set_state(target, state)

    finishers = {}  # type -> a function that checks a state and gives it to an object

    def refer(self, identifier):
        self.stack.append(self.persistent(identifier))


def CALL(function, kind, args, state):
    """The rule for the name that calls another function of the file."""
    raise AssertionError("Unpickler.call does this")


def _set_state(target, state):
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    state, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if state:
        target.__dict__.update(state)
    for key, value in (slots or {}).items():
        if not isinstance(inspect.getattr_static(type(target), key, None), types.MemberDescriptorType):
            raise UnpicklingError(f"{type(target).__name__} has no slot {brief(key)}")  # a property would run code
        setattr(target, key, value)


def check_key(key):
    """Refuse keys whose hash would take for ever or overflow the stack: nested tuples made by a file."""
    if type(key) in _SCALARS:
        return
    todo, seen = [key], 0
    while todo:
        value = todo.pop()
        seen += 1
        if seen > _KEY_NODES:
            raise UnpicklingError("a key in the file is nested too deeply")
        if isinstance(value, (tuple, frozenset)):
            if len(value) > _KEY_NODES:
                raise UnpicklingError("a key in the file is too large")
            todo.extend(value)
        elif type(value) in (list, dict, set, bytearray, _Mark):
            raise UnpicklingError(f"a key in the file is a {type(value).__name__}, which cannot be a key")


def check_keys(keys, hashes=None):
    """Refuse keys of one container that can't be keys, and many that a file gave the same hash: each is compared with all before it.

    `hashes`: how many of the keys have a hash, of those whose hash a file can choose."""
    hashes = {} if hashes is None else hashes
    for key in keys:
        kind = type(key)
        if kind in _SCALARS and kind is not complex and not (kind is int and abs(key) >= _CHOSEN):
            continue
        check_key(key)
        if isinstance(key, (int, complex, tuple, frozenset)):
            count = hashes[hash(key)] = hashes.get(hash(key), 0) + 1
            if count > _SAME_HASH:
                raise UnpicklingError("many keys of one container in the file have the same hash")


_SCALARS = frozenset((str, int, float, bool, bytes, type(None), complex))


def _decimal(self):
    text = self.line()
    if text in (b"00", b"01"):
        return text == b"01"
    return _integer(text)


def _integer(text):
    text = text.rstrip(b"L")
    if len(text) > 1000:
        raise UnpicklingError("a number in the file has too many digits")
    return int(text, 10)


def _place(text):
    if len(text) > 10:
        raise UnpicklingError("the file numbers a value beyond 2**32")
    return int(text)


def _text(raw):
    return raw.decode("utf-8", "surrogatepass")


def _quoted(text):
    if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
        raise UnpicklingError("the pickle in the file is damaged: a text without quotes")
    return codecs.escape_decode(text[1:-1])[0].decode("utf-8")


def _push(make):
    return lambda self: self.stack.append(make(self))


def _old_text(self, form):
    """Strings of Python 2: texts where they can be, else bytes; bytes where the caller wants these."""
    raw, encoding = self.bytes(self.number(form)), getattr(self.find, "encoding", "utf-8")
    if encoding == "bytes":
        return raw
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        return raw


def _tuple(count):
    def step(self):
        items = tuple(self.stack[-count:])
        if len(items) < count:
            raise UnpicklingError("the pickle in the file is damaged: a tuple lacks its values")
        self.stack[-count:] = [items]

    return step


def _marked_dict(self):
    items = self.marked()
    self.stack.append({})
    self.update(items)


def _pairwise(self):
    value, key = self.stack.pop(), self.stack.pop()
    self.update([key, value], one=True)


def _names_from_stack(self):
    name, module = self.stack.pop(), self.stack.pop()
    self.name(module, name)


def _protocol(self):
    version = self.bytes(1)[0]
    if version > 5:
        raise UnpicklingError(f"the pickle in the file is of protocol {version}, which is not known")


_TABLE = {
    b"\x80": _protocol,
    b"\x95": lambda self: self.number(_U64),  # frames only hint at sizes
    b"(": lambda self: self.stack.append(_MARK),
    b"0": lambda self: self.stack.pop(),
    b"1": lambda self: self.marked(),
    b"2": lambda self: self.stack.append(self.stack[-1]),
    b"N": lambda self: self.stack.append(None),
    b"\x88": lambda self: self.stack.append(True),
    b"\x89": lambda self: self.stack.append(False),
    # numbers
    b"I": _push(_decimal),
    b"L": _push(lambda self: _integer(self.line())),
    b"F": _push(lambda self: float(self.line())),
    b"G": _push(lambda self: self.number(_F64)),
    b"J": _push(lambda self: self.number(_I32)),
    b"K": _push(lambda self: self.bytes(1)[0]),
    b"M": _push(lambda self: self.number(_U16)),
    b"\x8a": _push(lambda self: int.from_bytes(self.bytes(self.bytes(1)[0]), "little", signed=True)),
    b"\x8b": _push(lambda self: int.from_bytes(self.bytes(self.number(_U32)), "little", signed=True)),
    # texts and bytes
    b"V": _push(lambda self: self.line().decode("raw-unicode-escape")),
    b"X": _push(lambda self: _text(self.bytes(self.number(_U32)))),
    b"\x8c": _push(lambda self: _text(self.bytes(self.bytes(1)[0]))),
    b"\x8d": _push(lambda self: _text(self.bytes(self.number(_U64)))),
    b"S": _push(lambda self: _quoted(self.line())),
    b"T": _push(lambda self: _old_text(self, _U32)),
    b"U": _push(lambda self: _old_text(self, struct.Struct("B"))),
    b"B": _push(lambda self: self.bytes(self.number(_U32))),
    b"C": _push(lambda self: self.bytes(self.bytes(1)[0])),
    b"\x8e": _push(lambda self: self.bytes(self.number(_U64))),
    b"\x96": _push(lambda self: bytearray(self.bytes(self.number(_U64)))),
    # containers
    b")": lambda self: self.stack.append(()),
    b"]": lambda self: self.stack.append([]),
    b"}": lambda self: self.stack.append({}),
    b"\x8f": lambda self: self.stack.append(set()),
    b"t": lambda self: self.stack.append(tuple(self.marked())),
    b"l": lambda self: self.stack.append(self.marked()),
    b"d": _marked_dict,
    b"\x85": _tuple(1),
    b"\x86": _tuple(2),
    b"\x87": _tuple(3),
    b"\x91": lambda self: self.frozen(),
    b"a": lambda self: self.extend([self.stack.pop()]),
    b"e": lambda self: self.extend(self.marked()),
    b"s": _pairwise,
    b"u": lambda self: self.update(self.marked()),
    b"\x90": lambda self: self.add(),
    # the memo
    b"p": lambda self: self.put(_place(self.line())),
    b"q": lambda self: self.put(self.bytes(1)[0]),
    b"r": lambda self: self.put(self.number(_U32)),
    b"\x94": lambda self: self.put(len(self.memo)),
    b"g": lambda self: self.stack.append(self.memo[_place(self.line())]),
    b"h": lambda self: self.stack.append(self.memo[self.bytes(1)[0]]),
    b"j": lambda self: self.stack.append(self.memo[self.number(_U32)]),
    # names and objects
    b"c": lambda self: self.name(self.line().decode(), self.line().decode()),
    b"\x93": _names_from_stack,
    b"R": lambda self: self.reduce(),
    b"\x81": lambda self: self.new(),
    b"b": lambda self: self.build(),
    b"P": lambda self: self.refer(self.line().decode()),
    b"Q": lambda self: self.refer(self.stack.pop()),
}
