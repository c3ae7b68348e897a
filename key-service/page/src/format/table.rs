//! Tables. The columns are described once, and each row lists its cells in the same order.

use maud::{Markup, Render, html};

/// Classes of columns that also apply to their headings. All other classes of a column apply only to its cells.
const OF_HEADINGS: [&str; 3] = ["n", "wide-only", "slim"];

/// A column: its heading, and the classes that style it. `n` aligns figures, `wraps` breaks long texts, `act` is for
/// buttons. On phones, `wide-only` hides the column and `slim` narrows it.
#[derive(Debug)]
pub struct Column {
    heading: Markup,
    classes: &'static str,
    /// Tooltip of the heading.
    hint: Option<&'static str>,
    /// Direction in which the table is sorted by this column, for `aria-sort`.
    sort: Option<&'static str>,
}

/// A row of cells. The first cell is the row's name, unless the table was built with [`Table::without_names`].
#[derive(Debug)]
pub struct Row {
    cells: Vec<Markup>,
    classes: Vec<&'static str>,
    title: Option<String>,
}

/// A table that scrolls within the page.
#[derive(Debug)]
pub struct Table {
    /// The table's name for screen readers.
    name: &'static str,
    columns: Vec<Column>,
    has_names: bool,
    empty: Option<Markup>,
}

impl Column {
    pub fn new(heading: impl Render, classes: &'static str) -> Self {
        Self { heading: heading.render(), classes, hint: None, sort: None }
    }

    #[must_use]
    pub fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    #[must_use]
    pub fn sorted(self, sort: Option<&'static str>) -> Self {
        Self { sort, ..self }
    }

    fn head(&self) -> Markup {
        let class = joined(self.classes.split_whitespace().filter(|class| OF_HEADINGS.contains(class)));
        html! { th class=[class] scope="col" title=[self.hint] aria-sort=[self.sort] { (self.heading) } }
    }

    fn cell(&self, content: &Markup, is_name: bool) -> Markup {
        let class = joined(self.classes.split_whitespace().filter(|class| *class != "slim"));
        html! {
            @if is_name { th class=[class] scope="row" { (content) } } @else { td class=[class] { (content) } }
        }
    }
}

impl<T: Render> From<(T, &'static str)> for Column {
    fn from((heading, classes): (T, &'static str)) -> Self {
        Self::new(heading, classes)
    }
}

impl Row {
    pub fn new(cells: impl Into<Vec<Markup>>) -> Self {
        Self { cells: cells.into(), classes: Vec::new(), title: None }
    }

    /// Adds a class if `is_so`.
    #[must_use]
    pub fn class(mut self, class: &'static str, is_so: bool) -> Self {
        self.classes.extend(is_so.then_some(class));
        self
    }

    /// Sets the tooltip of the row.
    #[must_use]
    pub fn title(self, title: String) -> Self {
        Self { title: Some(title), ..self }
    }
}

impl Table {
    pub fn new(name: &'static str, columns: impl IntoIterator<Item = impl Into<Column>>) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        Self { name, columns, has_names: true, empty: None }
    }

    /// Makes the first cell of each row a cell like the others, instead of the row's name.
    #[must_use]
    pub fn without_names(self) -> Self {
        Self { has_names: false, ..self }
    }

    /// Sets what is shown instead of the table if it has no rows.
    #[must_use]
    pub fn or(self, empty: impl Render) -> Self {
        Self { empty: Some(html! { p.empty { (empty) } }), ..self }
    }

    pub fn rows(&self, rows: impl IntoIterator<Item = Row>) -> Markup {
        let mut rows = rows.into_iter().peekable();
        if let (Some(empty), None) = (&self.empty, rows.peek()) {
            return empty.clone();
        }
        self.body(&self.cells(rows))
    }

    /// Renders sets of rows, each in a separate table body. The style sheet folds all rows but the first of a body
    /// while its box [`fold`] is not checked.
    pub fn trees(&self, trees: impl IntoIterator<Item = Vec<Row>>) -> Markup {
        let mut trees = trees.into_iter().peekable();
        if let (Some(empty), None) = (&self.empty, trees.peek()) {
            return empty.clone();
        }
        self.around(&html! { @for tree in trees { tbody.tree { (self.cells(tree)) } } })
    }

    /// Renders the table around rows that the caller has rendered.
    pub fn body(&self, rows: &Markup) -> Markup {
        self.around(&html! { tbody { (rows) } })
    }

    fn cells(&self, rows: impl IntoIterator<Item = Row>) -> Markup {
        let cell =
            |(n, (column, cell)): (usize, (&Column, &Markup))| column.cell(cell, n == 0 && self.has_names);
        html! {
            @for Row { cells, classes, title } in rows {
                tr class=[joined(classes.into_iter())] title=[title] {
                    @for (n, cell_of) in self.columns.iter().zip(&cells).enumerate() { (cell((n, cell_of))) }
                }
            }
        }
    }

    fn around(&self, bodies: &Markup) -> Markup {
        html! {
            div.scroll tabindex="0" role="region" aria-label=(self.name) {
                table { thead { tr { @for column in &self.columns { (column.head()) } } } (bodies) }
            }
        }
    }
}

/// Renders the box that shows the further rows of a table body. It works without a script.
pub fn fold(name: &str) -> Markup {
    html! { input.fold type="checkbox" autocomplete="off" aria-label=(name); }
}

fn joined<'a>(classes: impl Iterator<Item = &'a str>) -> Option<String> {
    Some(classes.collect::<Vec<_>>().join(" ")).filter(|class| !class.is_empty())
}

/// Renders the heading of a column that has only buttons. Only screen readers present it.
pub fn hidden_heading(name: &str) -> Markup {
    html! { span.hidden { (name) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_aligned_and_hidden_in_its_heading_and_in_every_row() {
        let columns = || {
            let spend = Column::new("Spend", "n wide-only").hint("In all").sorted(Some("ascending"));
            [Column::new("Name", "wraps"), spend, Column::new("End", "slim act")]
        };
        let row =
            || Row::new(["<a>", "1", "x"].map(Render::render)).class("gone", true).class("below", false);
        let table = Table::new("Keys", columns()).or("No keys.").rows([row()]).into_string();
        let head = "<tr><th scope=\"col\">Name</th><th class=\"n wide-only\" scope=\"col\" title=\"In all\" \
                    aria-sort=\"ascending\">Spend</th><th class=\"slim\" scope=\"col\">End</th></tr>";
        assert!(table.contains(head), "{table}");
        let cells = "<tr class=\"gone\"><th class=\"wraps\" scope=\"row\">&lt;a&gt;</th>\
                     <td class=\"n wide-only\">1</td><td class=\"act\">x</td></tr>";
        assert!(table.contains(cells), "{table}");
        let table = Table::new("Keys", columns()).without_names().rows([row()]).into_string();
        assert!(table.contains("<tr class=\"gone\"><td class=\"wraps\">"), "{table}");
        let trees = Table::new("Keys", columns()).trees([vec![row(), row()], vec![row()]]).into_string();
        assert_eq!(
            (trees.matches("<tbody class=\"tree\">").count(), trees.matches("<tr class").count()),
            (2, 3)
        );
        let empty = Table::new("Keys", columns()).or("No keys.").rows([]).into_string();
        assert_eq!(empty, "<p class=\"empty\">No keys.</p>");
    }
}
