"""The options of a command."""

import argparse


class Options(argparse.ArgumentParser):
    """Tells in one sentence what is wrong with an option."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` explains the options\n")


def architecture(text):
    """`sm_90` -> 90"""
    digits = text.removeprefix("sm_")
    if not digits.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no architecture such as sm_90")
    return int(digits)
