//! Requests to a model server: the list of models, the window, and a generation.

use std::{env, time::Duration};

use bytes::Bytes;
use http::{StatusCode, Uri};
use serde_json::Value;
use shared::text::shown;
use shared_catalog::{Access, ServerDescription, Source, Upstream, address_below};
use shared_client::upstream_call::{UpstreamAnswer, UpstreamCall};

use super::check::Generation;

const LIST_DEADLINE: Duration = Duration::from_secs(15);
/// Maximum time for a generation. It is long because a local server may first have to load the weights.
const GENERATION_DEADLINE: Duration = Duration::from_mins(2);
/// Maximum number of characters that our error repeats from a server's error.
const MAX_SHOWN_WORDS: usize = 300;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum AskRefused {
    /// The server has nothing at this address. This is normal for the list of models, which some servers do not have.
    NoSuchPath(String),
    /// Any other failure. Both variants contain a sentence that says what to do next.
    Other(String),
}

/// Asks a server for the list of models.
pub(super) async fn models(upstream: &Upstream) -> Result<ServerDescription, AskRefused> {
    let address = upstream.url.as_ref().and_then(|base| ServerDescription::list_address(upstream.kind, base));
    let (uri, answer) = send(upstream, address, None, LIST_DEADLINE).await?;
    let described = ServerDescription::read_list(&answer.body);
    described.ok_or_else(|| {
        AskRefused::Other(format!(
            "{uri} answers, but lists no models. Check that --address is the address of a model server, with its /v1"
        ))
    })
}

/// Returns the window from the list, or asks the server if the list does not have it.
pub(super) async fn window(upstream: &Upstream, listed: &ServerDescription, model: &str) -> Option<u64> {
    if let Some(window) = listed.window_of(model) {
        return Some(window);
    }
    let base = upstream.url.as_ref()?;
    let address = ServerDescription::address(upstream.kind, base)?;
    if Some(&address) == ServerDescription::list_address(upstream.kind, base).as_ref() {
        return None;
    }
    let (_, answer) = send(upstream, Some(address), None, LIST_DEADLINE).await.ok()?;
    ServerDescription::read(upstream.kind, &answer.body)?.window_of(model)
}

/// Asks a server for a generation, and returns the body of the answer.
pub(super) async fn generation(upstream: &Upstream) -> Result<Bytes, AskRefused> {
    let Generation { path, body } = Generation::of(upstream);
    let address = upstream.url.as_ref().and_then(|base| address_below(base, path));
    let (_, answer) = send(upstream, address, Some(body.to_string().into()), GENERATION_DEADLINE).await?;
    Ok(answer.body)
}

async fn send(
    upstream: &Upstream,
    address: Option<Uri>,
    body: Option<Bytes>,
    deadline: Duration,
) -> Result<(Uri, UpstreamAnswer), AskRefused> {
    let access = &upstream.access;
    let uri = address.ok_or_else(|| AskRefused::Other("--address: no request can be sent there".into()))?;
    let answer = UpstreamCall { uri: &uri, access, body, deadline }.send().await.map_err(|e| {
        AskRefused::Other(format!("{uri}: {e}. Start the server, or name its address with --address"))
    })?;
    if answer.status == StatusCode::OK {
        return Ok((uri, answer));
    }
    let words = words(&answer.body, &credentials(access));
    Err(refused(&uri, answer.status, &words, access))
}

/// Explains a status other than 200, with what to do next.
fn refused(uri: &Uri, status: StatusCode, words: &str, access: &Access) -> AskRefused {
    let code = status.as_u16();
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    if is_about_the_credential(status, &words) {
        let todo = match variable(access) {
            Some(variable) => format!("Check the key in {variable}"),
            None => {
                "It needs a credential: put it into an environment variable, and name the variable with --api-key-env"
                    .into()
            }
        };
        return AskRefused::Other(format!("{uri} refuses the credential ({code}){words}. {todo}"));
    }
    match status {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => AskRefused::NoSuchPath(format!(
            "there is nothing at {uri} ({code}){words}. Check --address: most addresses end in /v1"
        )),
        StatusCode::BAD_REQUEST => {
            AskRefused::Other(format!("{uri} answers {code}{words}. Check --model and --address"))
        }
        _ => AskRefused::Other(format!(
            "{uri} answers {code}{words}. Try again, or look into the server's log"
        )),
    }
}

/// Returns whether a server refuses the credential. Google and xAI answer a wrong credential with 400, so only the text
/// of the error shows that the credential is wrong.
fn is_about_the_credential(status: StatusCode, words: &str) -> bool {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => true,
        StatusCode::BAD_REQUEST => words.to_lowercase().replace("%20", " ").contains("api key"),
        _ => false,
    }
}

fn variable(access: &Access) -> Option<&str> {
    access.headers.iter().find_map(|header| match &header.source {
        Source::Variable(name) => Some(name.as_str()),
        Source::Text(_) | Source::File(_) => None,
    })
}

/// Returns the credentials in plain text. A server's error may quote them, and they must not appear on the screen.
fn credentials(access: &Access) -> Vec<String> {
    let variables = access.headers.iter().filter_map(|header| match &header.source {
        Source::Variable(name) => env::var(name).ok(),
        Source::Text(_) | Source::File(_) => None,
    });
    variables.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()).collect()
}

/// Returns the server's explanation, without credentials and safe for a terminal.
fn words(body: &[u8], credentials: &[String]) -> String {
    let text = String::from_utf8_lossy(body);
    let json: Option<Value> = serde_json::from_str(&text).ok();
    let said = match &json {
        Some(json) => {
            let places = ["/error/message", "/message", "/error", "/detail", "/0/error/message"];
            places.into_iter().find_map(|place| json.pointer(place)?.as_str()).unwrap_or_default()
        }
        // An HTML page is meant for browsers and does not help here.
        None if text.trim_start().starts_with('<') => "",
        None => text.trim(),
    };
    let said = credentials.iter().fold(said.to_owned(), |said, secret| said.replace(secret.as_str(), "…"));
    shown(said.trim_end_matches('.'), MAX_SHOWN_WORDS)
}

#[cfg(test)]
mod tests {
    use shared_catalog::Preset;

    use super::*;
    use crate::init::draft;

    #[test]
    fn a_servers_words_are_shown_without_commands_and_credentials() {
        let secret = ["sk-secret".to_owned()];
        for (body, expected) in [
            (
                r#"{"error":{"message":"Incorrect API key provided: sk-secret.","code":1}}"#,
                "Incorrect API key provided: …",
            ),
            (r#"{"error":"no\u001b[31m"}"#, r"no\u{1b}[31m"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (r#"[{"error":{"message":"API key not valid"}}]"#, "API key not valid"),
            ("<html>sk-secret</html>", ""),
            ("plain sk-secret", "plain …"),
            ("{}", ""),
        ] {
            assert_eq!(words(body.as_bytes(), &secret), expected, "{body}");
        }
        assert_eq!(words("x".repeat(9_000).as_bytes(), &[]).chars().count(), MAX_SHOWN_WORDS + 1);
    }

    #[test]
    fn every_refusal_says_what_to_do_next() {
        let presets = Preset::all().unwrap();
        let access = |name: &str| {
            let preset = presets.iter().find(|preset| preset.name == name).unwrap();
            draft::upstream(preset).unwrap().unwrap().access
        };
        let uri: Uri = "https://a/v1/models".parse().unwrap();
        let answered = |status, words, name| match refused(&uri, status, words, &access(name)) {
            AskRefused::NoSuchPath(said) | AskRefused::Other(said) => said,
        };
        let said = |status, name| answered(status, "no", name);
        assert!(
            said(StatusCode::UNAUTHORIZED, "openai").ends_with("(401): no. Check the key in OPENAI_API_KEY")
        );
        assert!(said(StatusCode::FORBIDDEN, "vllm").contains("--api-key-env"));
        assert!(said(StatusCode::NOT_FOUND, "vllm").contains("--address"));
        assert!(said(StatusCode::BAD_GATEWAY, "vllm").contains("502"));
        for (words, name, todo) in [
            ("API key not valid", "gemini", "Check the key in GEMINI_API_KEY"),
            ("Incorrect%20API%20key%20provided", "xai", "Check the key in XAI_API_KEY"),
            ("model `m` isn't supported on this route", "bedrock", "Check --model and --address"),
        ] {
            assert!(answered(StatusCode::BAD_REQUEST, words, name).ends_with(todo), "{words}");
        }
    }
}
