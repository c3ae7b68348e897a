//! Messages in the formats that incoming webhooks of Slack and Microsoft Teams accept.

use serde_json::{Value, json};

use crate::alerts::message::AlertMessage;

/// Writes a message for Slack. `&`, `<` and `>` are escaped, so that a label cannot mention a channel or disguise a
/// link.
pub(super) fn slack(message: &AlertMessage) -> String {
    let title = format!("*{}*", escaped(&message.title));
    let link = message.url.as_ref().map(|url| format!("<{}|Open the page>", escaped(url)));
    let text = escaped(&message.text());
    let lines: Vec<&str> = [title.as_str(), text.as_str()].into_iter().chain(link.as_deref()).collect();
    json!({ "text": lines.join("\n") }).to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Writes a message for Teams, as an adaptive card. The card's texts are text runs. They do not support Markdown, so a
/// label cannot disguise a link.
pub(super) fn teams(message: &AlertMessage) -> String {
    let run = |text: &str, is_bold: bool| {
        let weight = if is_bold { "Bolder" } else { "Default" };
        json!({"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, "weight": weight}]})
    };
    let lines = message.lines.iter().map(|line| run(line, false));
    let body: Vec<Value> = std::iter::once(run(&message.title, true))
        .chain(lines)
        .chain([run(&message.advice, false)])
        .collect();
    let open = message
        .url
        .as_ref()
        .map(|url| json!({"type": "Action.OpenUrl", "title": "Open the page", "url": url}));
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": body,
        "actions": open.into_iter().collect::<Vec<Value>>(),
    });
    let attachment = json!({
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": null,
        "content": card,
    });
    json!({"type": "message", "attachments": [attachment]}).to_string()
}
