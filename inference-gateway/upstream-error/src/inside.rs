//! Detects internal details in a text: addresses, credentials, files, stack traces.
//!
//! When in doubt, a text counts as internal. If an upstream's words are dropped, little is lost, but a leaked secret
//! cannot be taken back.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Words that occur in stack traces and headers, in lower case.
const TELLTALES: [&str; 7] = [
    "traceback",
    "stack trace",
    "stacktrace",
    "panicked at",
    "file \"", // a frame of Python
    "\n    at ",
    "bearer ",
];
/// Part of every address with a scheme.
const SCHEME: &str = "://";
/// Labels of internal host names, and top-level labels of most public host names.
const HOST_LABELS: [&str; 12] = [
    "internal",
    "intranet",
    "local",
    "localdomain",
    "lan",
    "svc",
    "cluster",
    "com",
    "net",
    "org",
    "io",
    "ai",
];
/// Endings of the names of source files and libraries.
const FILE_ENDINGS: [&str; 10] = [".py", ".rs", ".go", ".c", ".cc", ".cpp", ".cu", ".js", ".so", ".java"];
/// Prefixes of credentials that well-known services issue, in lower case.
const KEY_PREFIXES: [&str; 5] = ["sk-", "sk_", "hf_", "ghp_", "akia"];
/// A word of letters and digits counts as a token, a digest or an id from this length on.
const TOKEN_CHARS: usize = 20;
/// A word of letters only counts as a token, a digest or an id from this length on.
const LETTERS_ONLY_CHARS: usize = 40;

/// Prefixes of addresses where vendors document their APIs.
const DOCUMENTED_AT: [&str; 7] = [
    "https://docs.claude.com/",
    "https://docs.anthropic.com/",
    "https://platform.claude.com/",
    "https://claude.com/",
    "https://platform.openai.com/",
    "https://developers.openai.com/",
    "https://help.openai.com/",
];

/// Returns whether a sentence refers to a vendor's documentation.
pub(super) fn refers(sentence: &str) -> bool {
    DOCUMENTED_AT.iter().any(|address| sentence.contains(address))
}

/// Returns whether a text contains a stack trace, or a header with a credential.
pub(super) fn has_stack(text: &str) -> bool {
    let lower = text.to_lowercase();
    TELLTALES.iter().any(|telltale| lower.contains(telltale))
}

/// Returns whether a lower-case text contains an address.
pub(super) fn has_address(lower: &str) -> bool {
    lower.contains(SCHEME) || words(lower).any(is_address)
}

/// Returns whether a lower-case text contains a credential of a well-known service.
pub(super) fn has_credential(lower: &str) -> bool {
    words(lower).flat_map(parts).any(|part| KEY_PREFIXES.iter().any(|prefix| part.starts_with(prefix)))
}

/// Returns whether a text contains an address, a credential, a file or a stack trace.
pub(super) fn leaks_internals(text: &str) -> bool {
    let lower = text.to_lowercase();
    lower.contains(SCHEME) || has_stack(text) || words(&lower).any(is_internal)
}

/// Returns whether a lower-case word is an address, a path or a credential.
pub(super) fn is_internal(word: &str) -> bool {
    is_address(word) || is_path(word) || is_credential(word)
}

fn words(lower: &str) -> impl Iterator<Item = &str> {
    lower.split(ends_word).map(|word| word.trim_end_matches(['.', '!', '?']))
}

pub(super) fn ends_word(c: char) -> bool {
    c.is_whitespace() || "\"'`()[]{}<>,;=|".contains(c)
}

fn is_address(word: &str) -> bool {
    let host = word.split(['/', '%']).next().unwrap_or_default();
    let v6 = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    v6(host)
        || host.strip_suffix(':').is_some_and(v6)
        || has_port(host)
        || word.split(['/', ':', '@', '%']).any(|part| part.parse::<Ipv4Addr>().is_ok() || is_host(part))
}

/// Returns whether a word has the form `name:8000`. This is false for a word that begins with a number, because it is a
/// time or a position in a text.
fn has_port(word: &str) -> bool {
    word.rsplit_once(':').is_some_and(|(host, port)| {
        host.contains(|c: char| c.is_ascii_alphabetic()) && port.parse::<u16>().is_ok()
    })
}

/// Returns whether a word is a host name. Locations in a request, such as `messages.0.content`, are not host names.
fn is_host(name: &str) -> bool {
    name == "localhost" || name.split('.').skip(1).any(|label| HOST_LABELS.contains(&label))
}

fn is_path(word: &str) -> bool {
    let rooted = ["/", "~/", "./", "../", "\\\\"].iter().any(|start| {
        word.strip_prefix(start)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_alphanumeric() || c == '.'))
    });
    let frame = word.split(':').next().unwrap_or_default();
    rooted
        || word.contains(":\\")
        || word.contains(":/")
        || FILE_ENDINGS.iter().any(|end| frame.ends_with(end))
}

/// Splits a word into parts that may be credentials.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    word.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')
}

fn is_credential(word: &str) -> bool {
    parts(word).any(|part| {
        let mixed =
            part.contains(|c: char| c.is_ascii_digit()) && part.contains(|c: char| c.is_ascii_alphabetic());
        KEY_PREFIXES.iter().any(|prefix| part.starts_with(prefix))
            || part.len() >= if mixed { TOKEN_CHARS } else { LETTERS_ONLY_CHARS }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_credentials_files_and_stacks_are_inside() {
        for message in [
            "bad key sk-SECRET123456 at http://10.0.0.5:8000/v1",
            "cannot reach vllm+grpc://worker",
            "10.0.0.1 is down.",
            "peer 10.0.0.1:8000 hung up",
            "peer=10.0.0.0/8",
            "cannot bind [::1]:80",
            "no route to fe80::1%eth0",
            "fe80::1: no route",
            "worker-7:9999 refused",
            "localhost refused",
            "the proxy user@gpu3.internal refused",
            "vllm-0.vllm.default.svc.cluster.local said no",
            "printer.LOCAL said no",
            "see platform.provider.com/docs",
            "Incorrect API key provided: sk-abc.",
            "the header was 'Authorization: Bearer abc'",
            "unknown token 9f86d081884c7d659a2f",
            "unknown token AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGhIjKlMnOp",
            "no such file: /models/llama/config.json",
            "no such file: '~/models'",
            "cannot open C:\\models\\llama",
            "cannot open \\\\server\\share",
            "Traceback (most recent call last):\n  ...",
            "  File \"engine\", line 7, in run",
            "TypeError: x\n    at run (engine)",
            "thread 'main' panicked at src/main.rs:7:1",
            "error in engine/serving.py:12",
        ] {
            assert!(leaks_internals(message), "{message}");
        }
    }

    #[test]
    fn words_about_the_request_are_not() {
        for message in [
            "",
            "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens (parameter=input_tokens, value=2049).",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': 'Input should be \"text\"'}]",
            "[json.exception.parse_error.101] parse error at line 1, column 2",
            "Invalid 'messages[0].content': expected text and/or image/png.",
            "messages.0.content.1.image_url: cannot identify the image",
            "Expecting value: line 1 column 2 (char 1)",
            "temperature must be in [0.0, 2.0], got 2.5",
            "Unsupported parameter: max_completion_tokens; at 12:30",
            "the risk-free desk-side task of asking",
            "größer als erlaubt: 漢字",
        ] {
            assert!(!leaks_internals(message), "{message}");
        }
    }
}
