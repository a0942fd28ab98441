"""Notes of why a step goes to the accelerator or not, in memory and, if an environment variable says so, in files."""

import os

TRACKER_DUMP_PATH = "_fx_net_tracker"
NODES_SUFFIX, ALL_SUFFIX = "_nodes.txt", "_all.txt"
ENV_FX_NET_ACC_SPLITTER_TRACKER_MODE = "FX_NET_ACC_SPLITTER_TRACKER_MODE"
ENV_FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH = "FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH"
ENV_FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES = "FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES"
DUMP_PREFIX = os.environ.get(ENV_FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH, TRACKER_DUMP_PATH)
TRACKER_MODE = os.environ.get(ENV_FX_NET_ACC_SPLITTER_TRACKER_MODE, "0")


class NodeEvent:
    """What happened to the step `source`: `desc`, because of the step `dep` if there is one."""

    def __init__(self, source, desc, dep=None):
        self.source, self.desc, self.dep = source, desc, dep

    def to_str(self):
        """One line of text."""
        return f"{self.source.name}: {self.desc} {self.dep.name if self.dep else '#'}"


class NodeEventTracker:
    """Keeps events. `tracker_mode` 1 writes them to `dump_prefix` + "_all.txt"; 2 besides those of the steps that an environment
    variable names, and of what caused them, to "_nodes.txt"; 3 of all steps with more than one event; 0 writes nothing.

    >>> import wisp.fx
    >>> tracker = NodeEventTracker(0, "events")
    >>> tracker.add(wisp.fx.Graph().placeholder("x"), "init_cpu|not_callable")
    >>> tracker.to_dict()
    {'x': ['x: init_cpu|not_callable #']}
    """

    def __init__(self, tracker_mode, dump_prefix):
        self.tracker_mode, self.dump_prefix = tracker_mode, dump_prefix
        self.events, self.node_events, self.writer = [], {}, print

    def add(self, node, desc, dep=None):
        """Note an event."""
        self.node_events.setdefault(node.name, []).append(len(self.events))
        self.events.append(NodeEvent(node, desc, dep))

    def print_node(self, node_name, recursive=False, tab="", writer=None):
        """Print the events of a step; `recursive`ly those of the steps that caused them."""
        for number in self.node_events.get(node_name, ()):
            event = self.events[number]
            (writer or self.writer)(tab + event.to_str())
            if recursive and event.dep is not None:
                self.print_node(event.dep.name, True, "| " + tab, writer)

    def to_dict(self):
        """The events of each step as texts."""
        return {name: [self.events[number].to_str() for number in numbers] for name, numbers in self.node_events.items()}

    def print_all(self, writer=None):
        """Print all events by step."""
        for name in self.node_events:
            (writer or self.writer)(f"Node: {name}:")
            self.print_node(name, tab="  ", writer=writer)

    def dump(self):
        """Write the files of `tracker_mode`."""
        if self.tracker_mode >= 1:
            with open(self.dump_prefix + ALL_SUFFIX, "w") as file:
                self.print_all(lambda text: file.write(text + "\n"))
        if self.tracker_mode not in (2, 3):
            return
        names = os.environ.get(ENV_FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES, "").split(",")
        if self.tracker_mode == 3:
            names = [name for name, numbers in self.node_events.items() if len(numbers) > 1]
        with open(self.dump_prefix + NODES_SUFFIX, "w") as file:
            for name in names:
                file.write(f"===== Tracking node {name} =====\n")
                self.print_node(name, True, "|-", lambda text: file.write(text + "\n"))
                file.write(f"===== End of tracking node {name} =====\n")
