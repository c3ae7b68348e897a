//! Detects vendors' messages about the operator's account: its credit, its credentials, and its permissions. Clients
//! can do nothing about such messages.

/// Phrases about that account, in lower case, from answers of OpenAI, Anthropic, Azure, Bedrock, Gemini and Vertex,
/// Groq, and then Moonshot, DeepSeek, Z.ai, Alibaba, Fireworks, OpenRouter, Together, xAI and Cohere.
const OF_ACCOUNT: [&str; 57] = [
    "exceeded your current quota",
    "billing hard limit",
    "account is not active",
    "account has been deactivated",
    "organization must be verified",
    "member of an organization",
    "no such organization",
    "organization header should match",
    "incorrect api key",
    "api key provided",
    "insufficient permissions for this operation",
    "does not have access to",
    "country, region, or territory not supported",
    "credit balance is too low",
    "reached your specified api usage limits",
    "organization has been disabled",
    "available for this subscription",
    "extra usage is required",
    "draw from your extra usage",
    "invalid x-api-key",
    "oauth token has expired",
    "workspace api usage limits",
    "api deployment for this resource",
    "subscription key",
    "virtual network/firewall",
    "public access is disabled",
    "is not enabled for this subscription",
    "is not authorized to perform",
    "have access to the model with the specified model id",
    "with on-demand throughput",
    "use case details have not been submitted",
    "security token included in the request",
    "payment instrument",
    "marked by provider as legacy",
    "not available for this account",
    "has not been enabled",
    "api key not valid",
    "api key expired",
    "reported as leaked",
    "location is not supported for the api use",
    "free tier is not available",
    "has not been used in project",
    "enable billing",
    "denied on resource",
    "has been suspended",
    "organization has been restricted",
    "at the project level",
    "at the organization level",
    "is suspended",
    "insufficient balance",
    "account is in good standing",
    "insufficient credits",
    "requires more credits",
    "credit limit exceeded",
    "any credits yet",
    "using a trial key",
    "data policy",
];

/// Phrases, in lower case, of sentences that tell the operator what to buy or whom to ask.
const TO_OPERATOR: [&str; 14] = [
    "your organization",
    "your account",
    "your plan",
    "your project",
    "your subscription",
    "billing",
    "pricing tier",
    "dev tier",
    "service tier upgrade",
    "quota increase",
    "rate limit increase",
    "contact sales",
    "contact us",
    "project admin",
];

/// Prefixes, in lower case, of the names that vendors give to accounts and to what belongs to accounts.
const NAMES: [&str; 8] = ["org-", "org_", "proj-", "proj_", "arn:", "ak-", "projects/", "accounts/"];
/// Words, in lower case, that precede the name of something in an account.
const BEFORE_NAME: [&str; 6] = ["organization", "project", "account", "deployment", "workspace", "team"];

/// Returns whether a message is about the operator's account. Quoted parts are ignored, since they may be the client's
/// own text.
pub(super) fn is_of_account(message: &str) -> bool {
    let lower = without_quotes(message).to_lowercase();
    OF_ACCOUNT.iter().any(|words| lower.contains(words))
}

/// Returns whether a sentence addresses the operator.
pub(super) fn is_for_operator(sentence: &str) -> bool {
    let lower = without_quotes(sentence).to_lowercase();
    TO_OPERATOR.iter().any(|words| lower.contains(words))
}

/// Returns whether a lower-case word names an account, or something that belongs to an account. `before` is the
/// preceding word.
pub(super) fn is_name(word: &str, before: &str) -> bool {
    let is_named = |name: &&str| word.strip_prefix(*name).is_some_and(|rest| !rest.is_empty());
    let is_owned = || BEFORE_NAME.contains(&before) && has_name(word);
    let is_mail = || word.split_once('@').is_some_and(|(who, host)| !who.is_empty() && host.contains('.'));
    let is_number = || word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_digit());
    NAMES.iter().any(is_named) || is_owned() || is_mail() || is_number()
}

/// Returns whether a word is an invented name rather than an ordinary word.
fn has_name(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit() || c == '-' || c == '_')
}

/// Removes quoted parts. An apostrophe within a word, or a quotation mark that is never closed, does not begin a
/// quotation.
fn without_quotes(text: &str) -> String {
    let (mut kept, mut quoted, mut quote, mut before) =
        (String::with_capacity(text.len()), String::new(), None, ' ');
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_inside_word =
            c == '\'' && before.is_alphanumeric() && rest.peek().is_some_and(|next| next.is_alphanumeric());
        match quote {
            Some(end) if c == end && !is_inside_word => {
                quote = None;
                quoted.clear();
            }
            Some(_) => quoted.push(c),
            None if matches!(c, '"' | '`') || (c == '\'' && !before.is_alphanumeric()) => quote = Some(c),
            None => kept.push(c),
        }
        before = c;
    }
    kept + &quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_says_nothing_of_the_account() {
        for quoted in
            ["'credit balance is too low'", "`credit balance is too low`", "\"credit balance is too low\""]
        {
            assert!(!is_of_account(&format!("Invalid value: {quoted}. It isn't one.")), "{quoted}");
        }
        assert!(is_of_account("It isn't so: your credit balance is too low; it's 'x'."));
        assert!(is_of_account("The organization's credit balance is too low."));
        assert!(is_of_account("Sorry: 'your credit balance is too low."));
    }
}
