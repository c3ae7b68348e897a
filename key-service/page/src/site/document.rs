//! Renders the HTML document around every page, and small parts of forms.

use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::{
    assets::{HOME_SCREEN_ICON, ICON, SCRIPT, STYLE},
    theme::Theme,
    zone::Zone,
};

/// Renders a page without navigation, for signing in and for failures.
pub fn bare(theme: Theme, title: &str, content: &Markup) -> Response {
    let body = html! {
        main.bare #content {
            p.brand { (mark()) span { "Faregate" } }
            (content)
        }
    };
    document(theme, None, title, &body)
}

/// Renders the whole HTML document. The script shows times in `zone`.
pub(crate) fn document(theme: Theme, zone: Option<&Zone>, title: &str, body: &Markup) -> Response {
    let markup = html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme.as_str()) data-zone=[zone.map(Zone::name)] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                // The browser does not paint the page before the document is complete, so that nothing moves on a slow
                // connection.
                link rel="expect" href="#end" blocking="render";
                link rel="stylesheet" href=(STYLE.path);
                link rel="icon" type="image/svg+xml" href=(ICON.path);
                link rel="apple-touch-icon" href=(HOME_SCREEN_ICON.path);
                script src=(SCRIPT.path) defer blocking="render" {}
            }
            body { (body) span #end hidden {} }
        }
    };
    Html(markup.into_string()).into_response()
}

pub(crate) fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 32 32" aria-hidden="true" {
            rect width="32" height="32" rx="8" {}
            path d="M9 8h14v4H13v4h8v4h-8v5H9z" {}
        }
    }
}

/// Renders a field with a hint below it. The input must have this id, and must refer to the hint by `aria-describedby`,
/// so that the hint does not become part of the input's name.
pub fn hinted(id: &str, name: &str, hint: &str, input: &Markup) -> Markup {
    html! {
        div.field {
            label for=(id) { (name) }
            (input)
            @if !hint.is_empty() { small id={ (id) "-hint" } { (hint) } }
        }
    }
}

/// Renders a button that shows or hides a password.
pub fn reveals(id: &str) -> Markup {
    html! { div.needs-script { button.link type="button" data-reveals=(id) aria-pressed="false" { "Show password" } } }
}

/// Renders a problem above the fields of a form.
pub fn problem(problem: Option<&str>) -> Markup {
    html! { @if let Some(problem) = problem { p.problem role="alert" { (problem) } } }
}
