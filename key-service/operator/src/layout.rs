//! The layout of the operators' pages, and the paths that they link to.

use axum::response::Response;
use key_service_page::{frame::Frame, operator::Operator, paths::OPERATOR};
use maud::{Markup, html};

/// Path of an account's page, followed by the account's id.
pub(crate) const ACCOUNT: &str = "/operator/accounts";
pub(crate) const NEW_ACCOUNT: &str = "/operator/accounts/new";
pub(crate) const KEYS: &str = "/operator/keys";
pub(crate) const UPSTREAMS: &str = "/operator/upstreams";
pub(crate) const CATALOGUE: &str = "/operator/catalogue";
pub(crate) const INSTALLATION: &str = "/operator/installation";

/// Shown next to the logo and in the document's title.
const NAME: &str = "Operator";

/// A section of the operators' pages, as in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Accounts,
    Keys,
    Upstreams,
    Catalogue,
    Installation,
    /// Not in the navigation: the second factor and failures.
    Unlisted,
}

impl Section {
    /// The links of the navigation, in order.
    const LISTED: [(Self, &'static str, &'static str); 5] = [
        (Self::Accounts, "Accounts", OPERATOR),
        (Self::Keys, "Operator keys", KEYS),
        (Self::Upstreams, "Upstreams", UPSTREAMS),
        (Self::Catalogue, "Catalogue", CATALOGUE),
        (Self::Installation, "Installation", INSTALLATION),
    ];
}

/// Renders a page for an operator. The title is also the heading. A page below its section's first page links back to it.
/// Without a second factor, an operator may see no section yet, so the navigation is empty.
pub(crate) fn page(operator: &Operator, section: Section, title: &str, content: &Markup) -> Response {
    let links = html! {
        ul {
            @for (listed, name, path) in Section::LISTED {
                li { a href=(path) aria-current=[(listed == section).then_some("page")] { (name) } }
            }
        }
    };
    let listed = Section::LISTED.iter().find(|(listed, _, _)| *listed == section);
    let above = listed.filter(|(_, name, _)| *name != title).map(|(_, name, path)| (*name, *path));
    let frame = Frame {
        name: NAME,
        balance: html! {},
        finding: html! {},
        navigation: NAME,
        links: if operator.has_second_factor() {
            links
        } else {
            html! {}
        },
        person: html! { span.name title=(operator.name()) { bdi { (operator.name()) } } },
        own: html! {},
    };
    frame.page(operator, above, title, content)
}
