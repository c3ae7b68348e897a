"""Results of the checks with each server, printed as they arrive and as a table at the end."""

FAILS = "**fails**"


class Checks:
    def __init__(self):
        self.rows = {}
        self.columns = []
        self.held = self.failed = 0

    def holds(self, column, name, is_so, figure=""):
        """Records the result of a check, with its figures."""
        self.held, self.failed = self.held + bool(is_so), self.failed + (not is_so)
        print(f"{'ok   ' if is_so else 'FAIL '} {column}: {name}: {figure}", flush=True)
        text = str(figure).replace("|", "\\|").replace("\n", " ")
        self._put(column, name, text if is_so else f"{FAILS}: {text[:300]}")

    def left_out(self, column, name, why):
        """Records that something was not checked, and why."""
        print(f"left out {column}: {name}: {why}", flush=True)
        self._put(column, name, f"left out: {why}")

    def _put(self, column, name, text):
        if column not in self.columns:
            self.columns.append(column)
        self.rows.setdefault(name, {}).setdefault(column, []).append(text)

    def table(self):
        lines = [f"| check | {' | '.join(self.columns)} |", "|---" * (len(self.columns) + 1) + "|"]
        for name, cells in self.rows.items():
            lines.append(f"| {name} | {' | '.join(cell(cells.get(column, ['–'])) for column in self.columns)} |")
        return "\n".join(lines)


def cell(texts):
    """Joins the figures of a repeated check: failures first, without duplicates."""
    return "; ".join(sorted(dict.fromkeys(texts), key=lambda text: not text.startswith(FAILS)))
