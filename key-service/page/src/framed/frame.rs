//! The frame of a page for someone who is signed in: navigation, the person, the colours and the way out.

use axum::response::{AppendHeaders, IntoResponse, Response};
use http::header;
use maud::{Markup, html};

use crate::{
    site::{
        document::{document, mark},
        theme::Theme,
    },
    visitors::{browser::form_token, notice, session::SignedInBrowser},
};

/// What differs between the frames of members and of operators.
pub struct Frame<'a> {
    /// Address of the first page, below which all others are.
    pub home: &'a str,
    /// Name beside the mark, and in the title.
    pub name: &'a str,
    /// A number that every page shows, if any.
    pub balance: Markup,
    /// The box above the navigation that finds things, if any.
    pub finding: Markup,
    /// Name of the navigation for those who do not see it.
    pub navigation: &'a str,
    /// Links of the navigation.
    pub links: Markup,
    /// Who is signed in, above a menu of what is the person's own.
    pub person: Markup,
    /// Links of that menu, if any.
    pub own: Markup,
}

impl Frame<'_> {
    /// Makes the page around its content. `above` has name and address of the page to which it leads back.
    pub fn page(
        &self,
        person: &impl SignedInBrowser,
        above: Option<(&str, &str)>,
        title: &str,
        content: &Markup,
    ) -> Response {
        let notice = notice::line(person);
        let body = html! {
            a.skip href="#content" { "Skip to the content" }
            div.frame {
                header.side {
                    a.brand href=(self.home) { (mark()) span { (self.name) } }
                    (self.balance)
                    button.opens-menu type="button" popovertarget="menu" { "Menu" }
                    // On a narrow screen, a button opens it without a script.
                    div.menu #menu popover {
                        (self.finding)
                        nav.main aria-label=(self.navigation) { (self.links) }
                        (self.signed_in(person))
                    }
                }
                main #content tabindex="-1" {
                    @if let Some((name, path)) = above { p.above { a href=(path) { "‹ " (name) } } }
                    h1 { bdi { (title) } }
                    @if let Some(line) = &notice { p.done role="status" { (line) } }
                    (content)
                }
            }
        };
        let page = document(person.browser().theme, &format!("{title} · {}", self.name), &body);
        if person.browser().notice.is_none() {
            return page;
        }
        (AppendHeaders([(header::SET_COOKIE, person.browser().no_notice_cookie())]), page).into_response()
    }

    /// The person, with a menu of links, the colours and the way out.
    fn signed_in(&self, person: &impl SignedInBrowser) -> Markup {
        html! {
            details.me {
                summary { (self.person) }
                (self.own)
                form.theme method="post" action={ (self.home) "/theme" } {
                    (hidden(person))
                    fieldset {
                        legend { "Colours" }
                        @for theme in Theme::ALL {
                            button name="theme" value=(theme.as_str()) aria-pressed=(person.browser().theme == theme) {
                                (theme.as_str())
                            }
                        }
                    }
                }
                form.out method="post" action={ (self.home) "/sign-out" } {
                    (hidden(person))
                    button.link { "Sign out" }
                }
            }
        }
    }
}

/// Makes the hidden token that every form has.
pub fn hidden(person: &impl SignedInBrowser) -> Markup {
    html! { input type="hidden" name="token" value=(form_token(person.token())); }
}
