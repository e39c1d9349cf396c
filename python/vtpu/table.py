# SPDX-License-Identifier: Apache-2.0
"""A table of names and values that prints in a terminal and shows itself in a notebook."""

import dataclasses
import html


@dataclasses.dataclass
class Row:
    name: str
    value: str
    note: str = ""


class Report:
    def __init__(self, title):
        self.title = title
        self.rows = []

    def add(self, name, value, note=""):
        self.rows.append(Row(name, str(value), note))

    def text(self):
        names = max((len(row.name) for row in self.rows), default=0)
        values = max((len(row.value) for row in self.rows), default=0)
        lines = [self.title, "-" * len(self.title)]
        for row in self.rows:
            lines.append(f"{row.name:{names}}  {row.value:>{values}}  {row.note}".rstrip())
        return "\n".join(lines)

    def html(self):
        cells = "".join(
            f"<tr><td>{html.escape(row.name)}</td><td style='text-align:right'>{html.escape(row.value)}</td>"
            f"<td style='text-align:left'>{html.escape(row.note)}</td></tr>"
            for row in self.rows
        )
        return f"<table><caption>{html.escape(self.title)}</caption>{cells}</table>"

    def __str__(self):
        return self.text()

    def _repr_html_(self):
        return self.html()


def quantity(value, unit, digits=3):
    """1234567, "B" gives "1.23 MB": decimal prefixes, `digits` figures."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "u")):
        if abs(value) >= 0.9995 * factor:
            break
    else:
        factor, prefix = 1, ""
    return f"{value / factor:.{digits}g} {prefix}{unit}"
