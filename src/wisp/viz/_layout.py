"""A layered layout of boxes within boxes, forward from top to bottom.

Each box is laid out on its own: its children get ranks (longest path), long edges get bends in the ranks they pass, children
are ordered within ranks to cross little and are moved towards their neighbours. Where a box is folded only heights change,
so that folding in the browser (graph.js) needs the last step alone: `place`, which is small and is written there again.
"""

__all__ = ["Box", "Leaf", "Route", "layout", "place"]

PAD, HEADER, GAP, SPACE = 14, 26, 30, 26  # inside a box: sides, title; between ranks; between neighbours


class Leaf:
    """Something drawn at a place: x is its centre, y its top."""

    def __init__(self, key, width, height, parent=None):
        self.id, self.width, self.height, self.parent = key, width, height, parent
        self.x = self.y = 0.0
        self.rank = 0


class Box(Leaf):
    """Has children in ranks; `height` is what it measures when folded."""

    def __init__(self, key, width=0, height=0, parent=None):
        super().__init__(key, width, height, parent)
        self.children, self.ranks, self.folded = [], [], False
        self.tall = 0.0  # when it is open
        self.least = width
        self.tops = []  # (top, bottom) of every rank


class Bend:
    """Where an edge passes a rank of a box."""

    width = 4

    def __init__(self, box, rank):
        self.box, self.rank, self.x = box, rank, 0.0


class Route:
    """An edge on its way: from a leaf past bends to a leaf."""

    def __init__(self, source, target):
        self.source, self.target, self.bends = source, target, []
        self.out_shift = self.in_shift = 0.0


def _chain(leaf):
    """The boxes around a leaf, outermost first, then the leaf."""
    chain = [leaf]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    return chain[::-1]


def layout(root, routes):
    """Give every leaf, box and bend its x, and place them."""
    plans = [_lift(route) for route in routes]
    links = {}
    for split, up, down in plans:
        links.setdefault(up[split - 1], []).append((up[split], down[split]))
    for box in _boxes(root):
        _rank(box, links.get(box, []))
    segments = {}  # box -> pairs of neighbours in adjacent ranks
    for route, (split, up, down) in zip(routes, plans):
        for depth in range(len(up) - 1, split - 1, -1):  # leaving the boxes around the source
            box = up[depth - 1]
            if depth > split:
                _bends(route, box, up[depth], None, up[depth].rank + 1, len(box.ranks), segments)
            else:
                _bends(route, box, up[depth], down[depth], up[depth].rank + 1, down[depth].rank, segments)
        for depth in range(split + 1, len(down)):
            _bends(route, down[depth - 1], None, down[depth], 0, down[depth].rank, segments)
    for box in reversed(list(_boxes(root))):  # inner ones first: their widths are needed outside
        _order(box, segments.get(box, []))
        _spread(box, segments.get(box, []))
    _absolute(root, root.width / 2)
    place(root, 0.0)
    _shift_ports(routes)


def _lift(route):
    up, down = _chain(route.source), _chain(route.target)
    split = 0
    while split < min(len(up), len(down)) - 1 and up[split] is down[split]:
        split += 1
    return split, up, down


def _boxes(box):
    yield box
    for child in box.children:
        if isinstance(child, Box):
            yield from _boxes(child)


def _rank(box, links):
    """Ranks by the longest path; edges that would close a circle are left out of account; sources move down to their users."""
    following = {child: [] for child in box.children}
    for a, b in links:
        if a is not b and b not in following[a]:
            following[a].append(b)
    order, state = [], {}
    for start in box.children:
        stack = [(start, 0)] if start not in state else []
        if stack:
            state[start] = 1
        while stack:
            vertex, i = stack.pop()
            if i < len(following[vertex]):
                stack.append((vertex, i + 1))
                following_one = following[vertex][i]
                if state.get(following_one) == 1:
                    following[vertex][i] = vertex  # a circle: this edge goes up
                elif following_one not in state:
                    state[following_one] = 1
                    stack.append((following_one, 0))
            else:
                state[vertex] = 2
                order.append(vertex)
    for child in box.children:
        child.rank = 0
    has_input = set()
    for vertex in reversed(order):
        for other in following[vertex]:
            if other is not vertex:
                other.rank = max(other.rank, vertex.rank + 1)
                has_input.add(other)
    for vertex in order:
        users = [other.rank for other in following[vertex] if other is not vertex]
        if vertex not in has_input and users:
            vertex.rank = min(users) - 1
    box.ranks = [[] for _ in range(1 + max((child.rank for child in box.children), default=-1))]
    for child in box.children:
        box.ranks[child.rank].append(child)


def _bends(route, box, first, last, start, stop, segments):
    """Bends in the ranks from start to stop of a box; without first or last the edge enters or leaves the box."""
    found = segments.setdefault(box, [])
    before = first
    for rank in range(start, stop):
        bend = Bend(box, rank)
        box.ranks[rank].append(bend)
        route.bends.append(bend)
        if before is not None:
            found.append((before, bend))
        before = bend
    if before is not None and last is not None and before.rank < last.rank:
        found.append((before, last))


def _neighbours(segments):
    above, below = {}, {}
    for a, b in segments:
        below.setdefault(a, []).append(b)
        above.setdefault(b, []).append(a)
    return above, below


def _order(box, segments):
    """Sort ranks by the mean place of the neighbours, down and up a few times."""
    above, below = _neighbours(segments)
    for sweep in range(6):
        ranks = box.ranks[1:] if sweep % 2 == 0 else box.ranks[-2::-1]
        neighbours = above if sweep % 2 == 0 else below
        places = {vertex: i - len(rank) / 2 for rank in box.ranks for i, vertex in enumerate(rank)}
        for rank in ranks:

            def middle(vertex, around=neighbours, at=places):
                near = around.get(vertex)
                return sum(at[other] for other in near) / len(near) if near else at[vertex]

            rank.sort(key=middle)
            places.update((vertex, i - len(rank) / 2) for i, vertex in enumerate(rank))


def _distances(rank):
    """How far the centres of neighbours must be apart."""
    return [(a.width + b.width) / 2 + SPACE for a, b in zip(rank, rank[1:])]


def _settle(rank, wanted):
    """Places as near as possible to those wanted, without overlap: neighbours that push each other move as one block."""
    gaps = [0.0]
    for distance in _distances(rank):
        gaps.append(gaps[-1] + distance)
    blocks = []  # [sum of wishes, how many]
    for i in range(len(rank)):
        weight = 0.05 if isinstance(rank[i], Bend) else 1.0
        blocks.append([(wanted[i] - gaps[i]) * weight, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, weight, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += weight
            blocks[-1][2] += count
    i = 0
    for total, weight, count in blocks:
        for _ in range(count):
            rank[i].x = total / weight + gaps[i]
            i += 1


def _spread(box, segments):
    """x of the children relative to the box's middle, and the box's width."""
    above, below = _neighbours(segments)
    for rank in box.ranks:
        _settle(rank, [0.0] * len(rank))
    for sweep in range(24):
        for rank in box.ranks if sweep % 2 == 0 else reversed(box.ranks):
            wanted = []
            for vertex in rank:  # cards follow cards; only bends follow bends
                near = [
                    (other.x, 0.02 if isinstance(other, Bend) and not isinstance(vertex, Bend) else 1.0)
                    for other in above.get(vertex, []) + below.get(vertex, [])
                ]
                wanted.append(sum(x * weight for x, weight in near) / sum(weight for _, weight in near) if near else vertex.x)
            _settle(rank, wanted)
    if not any(box.ranks):
        box.width = box.least
        return
    left = min(v.x - v.width / 2 for rank in box.ranks for v in rank)
    right = max(v.x + v.width / 2 for rank in box.ranks for v in rank)
    box.width = max(box.least, right - left + 2 * PAD)
    for rank in box.ranks:
        for vertex in rank:
            vertex.x -= (left + right) / 2


def _absolute(box, middle):
    box.x = middle
    for rank in box.ranks:
        for vertex in rank:
            if isinstance(vertex, Box):
                _absolute(vertex, middle + vertex.x)
            else:
                vertex.x += middle


def _height(leaf):
    if not isinstance(leaf, Box) or leaf.folded:
        return leaf.height
    ranks = [max((_height(v) for v in rank if not isinstance(v, Bend)), default=0) for rank in leaf.ranks]
    leaf.tall = HEADER + sum(ranks) + GAP * max(0, len(ranks) - 1) + PAD
    return leaf.tall


def place(box, y):
    """The y of everything, from the top of a box; folded boxes are as high as their card."""
    box.y = y
    _height(box)
    y += HEADER
    box.tops = []
    for rank in box.ranks:
        tall = max((_height(v) for v in rank if not isinstance(v, Bend)), default=0)
        box.tops.append((y, y + tall))
        for vertex in rank:
            if isinstance(vertex, Bend):
                continue
            vertex.y = y + (tall - _height(vertex)) / 2
            if isinstance(vertex, Box):
                place(vertex, vertex.y)
        y += tall + GAP


def _shift_ports(routes):
    """Edges that end at the same leaf end beside each other, in the order in which they come."""
    arriving, leaving = {}, {}
    for route in routes:
        arriving.setdefault(route.target, []).append(route)
        leaving.setdefault(route.source, []).append(route)
    for ends, name, at in ((arriving, "in_shift", -1), (leaving, "out_shift", 0)):
        for leaf, several in ends.items():

            def origin(route, at=at, arriving=ends is arriving):
                return route.bends[at].x if route.bends else (route.source if arriving else route.target).x

            several.sort(key=origin)
            step = min(26, leaf.width / (len(several) + 1))
            for i, route in enumerate(several):
                setattr(route, name, (i - (len(several) - 1) / 2) * step)
