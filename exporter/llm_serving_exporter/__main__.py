"""`python -m llm_serving_exporter`."""

import sys

from llm_serving_exporter.cli import main

sys.exit(main())
