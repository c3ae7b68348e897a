//! The frame around each page for someone who is signed in. It has the navigation and the personal menu with the theme
//! and the sign-out.

use axum::response::{AppendHeaders, IntoResponse, Response};
use http::header;
use maud::{Markup, html};

use crate::{
    site::{
        document::{document, mark},
        theme::Theme,
        zone::Zone,
    },
    visitors::{
        browser::form_token,
        notice::{self, Notice, Undo},
        person::Person,
    },
};

/// What differs between the frames for members and for operators.
pub struct Frame<'a> {
    /// Shown next to the logo and in the document's title.
    pub name: &'a str,
    /// The account's credit; empty for operators.
    pub balance: Markup,
    /// The search box above the navigation; empty for operators.
    pub finding: Markup,
    /// Label of the navigation for screen readers.
    pub navigation: &'a str,
    pub links: Markup,
    /// Who is signed in. A click opens the personal menu.
    pub person: Markup,
    /// Links in the personal menu.
    pub own: Markup,
}

impl Frame<'_> {
    /// Renders a page with this content in the frame. `above` is the name and path of the page's parent page.
    pub fn page<P: Person>(
        &self,
        person: &P,
        above: Option<(&str, &str)>,
        title: &str,
        content: &Markup,
    ) -> Response {
        let notice = notice::of(person);
        let body = html! {
            a.skip href="#content" { "Skip to content" }
            div.frame {
                header.side {
                    a.brand href=(P::HOME) { (mark()) span { (self.name) } }
                    (self.balance)
                    button.opens-menu type="button" popovertarget="menu" { "Menu" }
                    // On a narrow screen, the button opens this menu. This works without a script.
                    div.menu #menu popover {
                        (self.finding)
                        nav.main aria-label=(self.navigation) { (self.links) }
                        (self.signed_in(person))
                    }
                }
                main #content tabindex="-1" {
                    @if let Some((name, path)) = above { p.above { a href=(path) { "‹ " (name) } } }
                    h1 { bdi { (title) } }
                    @if let Some(notice) = &notice { (shown(person, notice)) }
                    (content)
                }
            }
        };
        let zone = person.browser().chosen_zone.as_ref();
        let page = document(person.browser().theme, zone, &format!("{title} · {}", self.name), &body);
        if person.browser().notice.is_none() {
            return page;
        }
        (AppendHeaders([(header::SET_COOKIE, person.browser().no_notice_cookie())]), page).into_response()
    }

    /// Renders the personal menu: links, theme, time zone and sign-out.
    fn signed_in<P: Person>(&self, person: &P) -> Markup {
        let zone = person.browser().zone();
        let mut zones = vec![Zone::utc()];
        zones.extend((!zone.is_utc()).then(|| zone.clone()));
        html! {
            details.me {
                summary { (self.person) }
                (self.own)
                form.theme method="post" action={ (P::HOME) "/theme" } {
                    (hidden(person))
                    fieldset {
                        legend { "Theme" }
                        @for theme in Theme::ALL {
                            button name="theme" value=(theme.as_str()) aria-pressed=(person.browser().theme == theme) {
                                (theme.as_str())
                            }
                        }
                    }
                }
                form.theme.zones method="post" action={ (P::HOME) "/theme" } {
                    (hidden(person))
                    fieldset {
                        legend { "Times and days" }
                        @for offered in &zones {
                            button name="zone" value=(offered.name()) aria-pressed=(*offered == zone) title=(offered.name()) { (offered.title()) }
                        }
                        // The script offers the browser's zone.
                        button.needs-script name="zone" aria-pressed="false" data-own-zone hidden {}
                    }
                }
                form.out method="post" action={ (P::HOME) "/sign-out" } {
                    (hidden(person))
                    button.link { "Sign out" }
                }
            }
        }
    }
}

/// Renders the sentence about what the last action did. If the action can be undone, there is a button for that.
fn shown<P: Person>(person: &P, Notice { line, undo }: &Notice) -> Markup {
    html! {
        div.done {
            p role="status" { (line) }
            @if let Some(Undo { path, fields }) = undo {
                form method="post" action=(path) {
                    (hidden(person))
                    @for (name, value) in fields.pairs() { input type="hidden" name=(name) value=(value); }
                    button { "Undo" }
                }
            }
        }
    }
}

/// Renders the CSRF token that every form needs.
pub fn hidden(person: &impl Person) -> Markup {
    html! { input type="hidden" name="token" value=(form_token(person.token())); }
}
