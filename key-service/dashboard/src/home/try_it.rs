//! A chat in the browser through the public API, and commands for programs and agents.

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::html;

use crate::api_keys::first_steps;
use key_service_page::{
    app::App,
    form::{PageAddress, query},
    layout::{Section, hinted, page},
    session::KeysViewer,
    show::copyable,
};

const PATH: &str = "/dashboard/try-it";

/// Shows the chat. A script sends the requests, so the dashboard never receives a key.
pub(crate) async fn show(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Response {
    let content = html! {
        p.lead { "Requests go from this page to the public API and are billed to the key. The key is not stored." }
        p.note.needs-no-script { "This page needs JavaScript. Every other page works without it." }
        form.card.needs-script data-try {
            div.row {
                label { "API key" input type="password" name="key" autocomplete="off" required spellcheck="false"; }
                label { "Model" select name="model" {
                    @for model in &app.catalog.get().models { option value=(model.id) { (model.id) } }
                } }
                label { "API" select name="dialect" {
                    @for (name, shown) in [("chat", "Chat completions"), ("responses", "Responses"), ("messages", "Messages")] {
                        option value=(name) { (shown) }
                    }
                } }
                label { "Temperature" input name="temperature" inputmode="decimal" placeholder="default"; }
            }
            label { "System prompt" textarea.short name="system" rows="1" placeholder="None" {} }
            div.talk role="log" tabindex="0" aria-label="Conversation" aria-live="polite" {}
            div.stack.wide {
                (hinted("message", "Message", "Ctrl+Enter sends.", &html! {
                    textarea #message name="message" required aria-describedby="message-hint" {}
                }))
                (hinted("image", "Image", "Optional: PNG, JPEG, WebP or GIF.", &html! {
                    input #image type="file" name="image" accept="image/png,image/jpeg,image/webp,image/gif"
                        aria-describedby="image-hint";
                }))
                div.buttons {
                    button.primary name="send" { "Send" }
                    button type="button" name="stop" disabled { "Stop" }
                    button type="button" name="clear" { "New chat" }
                    span.quiet data-cost aria-live="polite" {}
                }
                details hidden data-curl { summary { "curl for the last request" } (copyable("curl", "")) }
            }
        }
    };
    let (models, query) = (first_steps::models(&app.catalog.get(), &[]), query(&request));
    let address = PageAddress { path: PATH, query: &query };
    let content =
        html! { (content) (first_steps::commands_of_known_key(&viewer.browser.base(), &models, address)) };
    page(&viewer, Section::TryIt, "Try it", &content)
}
