//! Pagination: "51–100 of 200", and links to the next and previous pages. The address has the cursors of earlier pages,
//! so links back need neither a script nor a listing in reverse.

use maud::{Markup, html};

use crate::{
    failure::Failure,
    form::{Fields, with},
    format::show::count,
};

pub const ROWS_ON_PAGE: usize = 50;
/// Number of earlier pages whose cursors an address keeps, so that the address stays below two kilobytes.
const KEPT: usize = 40;
/// Query field with the cursors.
const FIELD: &str = "after";

/// The cursors of the pages before this page and of this page, in order. Empty on the first page.
#[derive(Clone, Debug, Default)]
pub struct Pagination(Vec<Begin>);

#[derive(Clone, Debug)]
struct Begin {
    /// Number of rows on all earlier pages.
    rows: u64,
    /// Cursor of the last row before the page.
    cursor: String,
}

/// A page that was read.
pub struct Shown {
    pub rows: usize,
    /// Number of rows in the whole list; `None` if counting is expensive.
    pub total: Option<u64>,
    /// Cursor of the next page, if there is one.
    pub next: Option<String>,
    /// Whether filters are set, so that a link to clear them makes sense.
    pub is_filtered: bool,
}

impl Pagination {
    pub fn of(query: &Fields) -> Result<Self, Failure> {
        let begins = query.get(FIELD).split('.').filter(|text| !text.is_empty()).map(Begin::parse);
        begins.collect::<Option<_>>().map(Self).ok_or(Failure::NotFound)
    }

    /// Returns the query for the first page of the list.
    pub fn without(query: &Fields) -> String {
        with(query, FIELD, "")
    }

    /// Returns the cursor after which the page begins; `None` on the first page.
    pub fn after<C>(&self, parse: impl Fn(&str) -> Option<C>) -> Result<Option<C>, Failure> {
        let cursor = self.0.last().map(|begin| parse(&begin.cursor).ok_or(Failure::NotFound));
        cursor.transpose()
    }

    /// Returns the number of rows on all earlier pages.
    pub(crate) fn rows_before(&self) -> u64 {
        self.0.last().map_or(0, |begin| begin.rows)
    }

    /// Returns the length of a list whose rows are numbered without gaps and shown newest first. `first` is the number
    /// of the page's first row; rows up to number `gone_until` were dropped.
    pub fn total_of_numbered(&self, first: u64, gone_until: u64) -> u64 {
        (first + self.rows_before()).saturating_sub(gone_until)
    }

    /// Renders which rows the page has, and links to other pages. `query` has the filters of the list.
    pub fn links(&self, path: &str, query: &Fields, shown: &Shown) -> Markup {
        let address = |begins: &[Begin]| match with(query, FIELD, &written(begins)) {
            query if query.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        };
        let next = shown.next.as_ref().map(|cursor| {
            let rows = self.rows_before().saturating_add(shown.rows as u64);
            let begins = [self.0.as_slice(), &[Begin { rows, cursor: cursor.clone() }]].concat();
            address(&begins[begins.len().saturating_sub(KEPT)..])
        });
        let (before, is_second) = (self.0.split_last().map(|(_, before)| before), self.is_second());
        html! {
            nav.pages aria-label="Pages" {
                (self.place(shown))
                @if before.is_some() && !is_second { a.button href=(address(&[])) { "First page" } }
                @if let Some(before) = before.filter(|before| is_second || !before.is_empty()) {
                    a.button rel="prev" href=(address(before)) { "Previous page" }
                }
                @if let Some(next) = next {
                    a.button rel="next" href=(next) {
                        @if shown.rows < ROWS_ON_PAGE { "Search further" } @else { "Next page" }
                    }
                }
                @if shown.is_filtered && shown.rows > 0 { a href=(path) { "Clear filters" } }
            }
        }
    }

    /// Returns whether the previous page is the first page. Having only one cursor does not prove this: after many
    /// links back, an address that kept only the last cursors also has one cursor left.
    fn is_second(&self) -> bool {
        self.0.len() == 1 && self.rows_before() <= ROWS_ON_PAGE as u64
    }

    /// Renders the numbers of the page's first and last row, and the total if it is known.
    fn place(&self, shown: &Shown) -> Markup {
        let (first, last) = (self.rows_before() + 1, self.rows_before().saturating_add(shown.rows as u64));
        let total = if shown.next.is_none() { Some(last) } else { shown.total.map(|total| total.max(last)) };
        html! {
            @if shown.rows > 0 {
                span { @if first < last { (count(first)) "–" } (count(last)) @if let Some(total) = total { " of " (count(total)) } }
            }
        }
    }
}

impl Begin {
    fn parse(text: &str) -> Option<Self> {
        let (rows, cursor) = text.split_once('-')?;
        let rows = rows.parse().ok().filter(|rows| *rows < u64::MAX / 2)?;
        Some(Self { rows, cursor: cursor.to_owned() })
    }
}

/// Writes the cursors for an address, with characters that need no escaping.
fn written(begins: &[Begin]) -> String {
    let texts: Vec<_> = begins.iter().map(|Begin { rows, cursor }| format!("{rows}-{cursor}")).collect();
    texts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the texts and addresses of the links on the page with this address, and the text that says which rows it
    /// has.
    fn page(address: &str, rows: usize, next: Option<&str>) -> (Vec<(String, String)>, String) {
        let query = Fields::of_query(address.split_once('?').map(|(_, query)| query));
        let pagination = Pagination::of(&query).unwrap();
        let next = next.map(str::to_owned);
        let shown = Shown { rows, total: Some(9_999), next, is_filtered: false };
        let text = pagination.links("/list", &query, &shown).into_string().replace("&amp;", "&");
        let links = text.split("href=\"").skip(1).map(|link| {
            let (address, rest) = link.split_once("\">").unwrap();
            (rest.split('<').next().unwrap().to_owned(), address.to_owned())
        });
        let place = text.split_once("<span>").map_or("", |(_, rest)| rest.split('<').next().unwrap());
        (links.collect(), place.to_owned())
    }

    fn link(page: &(Vec<(String, String)>, String), text: &str) -> Option<String> {
        page.0.iter().find(|(shown, _)| shown == text).map(|(_, address)| address.clone())
    }

    #[test]
    fn pages_lead_forth_and_back_with_their_filters() {
        let first = page("/list?q=a", ROWS_ON_PAGE, Some("ak_1"));
        assert_eq!((first.1.as_str(), first.0.len()), ("1–50 of 9,999", 1));
        let address = link(&first, "Next page").unwrap();
        assert_eq!(address, "/list?q=a&after=50-ak_1");
        let second = page(&address, ROWS_ON_PAGE, Some("ak_2"));
        assert_eq!(second.1, "51–100 of 9,999");
        assert_eq!(link(&second, "Previous page").unwrap(), "/list?q=a");
        assert_eq!(link(&second, "First page"), None);
        let third = page(&link(&second, "Next page").unwrap(), 7, None);
        assert_eq!(third.1, "101–107 of 107", "the last page says how many there are");
        assert_eq!(link(&third, "Previous page").unwrap(), address);
        assert_eq!(link(&third, "First page").unwrap(), "/list?q=a");
    }

    #[test]
    fn a_search_that_paused_goes_on_with_its_numbers() {
        let first = page("/list", 0, Some("77"));
        assert_eq!(first.1, "");
        let second = page(&link(&first, "Search further").unwrap(), 1, None);
        assert_eq!(second.1, "1 of 1");
        assert_eq!(link(&second, "Previous page").unwrap(), "/list");
    }

    #[test]
    fn an_address_keeps_its_length_however_far_it_leads() {
        let mut address = "/list".to_owned();
        for n in 0..100 {
            address = link(&page(&address, ROWS_ON_PAGE, Some(&format!("ak_{n:026}"))), "Next page").unwrap();
        }
        assert!(address.len() < 2_000, "{address}");
        let mut pages = 0;
        while let Some(before) = link(&page(&address, ROWS_ON_PAGE, None), "Previous page") {
            (address, pages) = (before, pages + 1);
        }
        assert_eq!(pages, KEPT - 1);
        assert_eq!(link(&page(&address, ROWS_ON_PAGE, None), "First page").unwrap(), "/list");
    }

    #[test]
    fn an_address_that_is_none_of_ours_has_no_page() {
        for after in ["ak_1", "x-ak_1", "-", "18446744073709551615-ak_1", "50-ak_1..", "50-ak_1.ak_2"] {
            let query = Fields::of([("after", after.to_owned())]);
            let read = Pagination::of(&query);
            assert_eq!(read.is_ok(), after == "50-ak_1..", "{after}");
        }
    }
}
