"""python -m wisp"""

from wisp.cli import main

main()
