//! Types and codes that vendors give to errors.

use crate::{error::UpstreamError, operator};

/// The status that each type or code corresponds to: types of Anthropic's API, and codes of failed responses.
const STATUSES: [(&str, u16); 22] = [
    ("invalid_request_error", 400),
    ("authentication_error", 401),
    ("billing_error", 402),
    ("permission_error", 403),
    ("not_found_error", 404),
    ("request_too_large", 413),
    ("rate_limit_error", 429),
    ("timeout_error", 504),
    ("overloaded_error", 529),
    ("invalid_prompt", 400),
    ("context_length_exceeded", 400),
    ("bio_policy", 400),
    ("cyber_policy", 400),
    ("misalignment_policy_violation", 400),
    ("rate_limit_exceeded", 429),
    ("slow_down", 503),
    ("server_is_overloaded", 503),
    // Codes of Z.ai: too many requests at once, too many for now, and too many in total.
    ("1302", 429),
    ("1303", 429),
    ("1305", 429),
    ("RESOURCE_EXHAUSTED", 429),
    ("UNAVAILABLE", 503),
];

/// Types and codes about the account of the gateway's operator.
const OF_ACCOUNT: [&str; 25] = [
    "billing_error",
    "API_KEY_INVALID",
    "Arrearage",
    "invalid_api_key",
    "organization_restricted",
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "usage_not_included",
    "contract_spend_limit_reached",
    "enforced_spend_limit_reached",
    "linked_organization_spend_limit_reached",
    "linked_organization_billing_unavailable",
    "organization_on_hold",
    "exceeded_current_quota_error",
    // Codes of Alibaba.
    "AccessDenied.Unpurchased",
    "AllocationQuota.FreeTierOnly",
    "PrepaidBillOverdue",
    "PostpaidBillOverdue",
    "CommodityNotPurchased",
    // Codes of Z.ai: the account is not active, missing, locked, has no money, or broke the rules.
    "1110",
    "1111",
    "1112",
    "1113",
    "1121",
];

impl UpstreamError {
    /// Returns the status of an error event in a stream: its code if that is a status, or else the status that its type
    /// or code corresponds to.
    pub fn status_in_stream(&self) -> u16 {
        let status =
            |name: &str| STATUSES.iter().find(|(known, _)| *known == name).map(|(_, status)| *status);
        // Every code about images blames an image of the request.
        let of_image = || self.code.contains("image").then_some(400);
        let is_status = |code: &u16| (100..600).contains(code);
        self.code
            .parse()
            .ok()
            .filter(is_status)
            .or_else(|| status(&self.code))
            .or_else(|| status(&self.kind))
            .or_else(of_image)
            .unwrap_or(500)
    }

    /// Returns whether the error is about the operator's account. Clients can do nothing about it.
    pub(super) fn is_of_account(&self) -> bool {
        OF_ACCOUNT.iter().any(|name| self.is(name)) || operator::is_of_account(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Verdict;

    fn in_stream(event: &str) -> (u16, Verdict) {
        let error = UpstreamError::read(event.as_bytes());
        let status = error.status_in_stream();
        (status, error.verdict(status))
    }

    #[test]
    fn an_error_of_a_message_has_the_status_of_its_type() {
        for (kind, status, verdict) in [
            ("invalid_request_error", 400, Verdict::Invalid(None)),
            ("authentication_error", 401, Verdict::Broken),
            ("billing_error", 402, Verdict::Broken),
            ("permission_error", 403, Verdict::Broken),
            ("not_found_error", 404, Verdict::Broken),
            ("request_too_large", 413, Verdict::TooLarge),
            ("rate_limit_error", 429, Verdict::Overloaded),
            ("api_error", 500, Verdict::Broken),
            ("timeout_error", 504, Verdict::Timeout),
            ("overloaded_error", 529, Verdict::Overloaded),
            ("an_error_of_tomorrow", 500, Verdict::Broken),
        ] {
            let event = format!(
                r#"{{"type":"error","error":{{"type":"{kind}","message":"m","details":null}},"request_id":"req_1"}}"#
            );
            assert_eq!(in_stream(&event), (status, verdict), "{kind}");
        }
    }

    #[test]
    fn a_failed_response_has_the_status_of_its_code() {
        for (code, status, verdict) in [
            ("server_error", 500, Verdict::Broken),
            ("rate_limit_exceeded", 429, Verdict::Overloaded),
            ("server_is_overloaded", 503, Verdict::Overloaded),
            ("invalid_prompt", 400, Verdict::Invalid(None)),
            ("invalid_base64_image", 400, Verdict::Invalid(None)),
            ("context_length_exceeded", 400, Verdict::TooLong),
            ("insufficient_quota", 500, Verdict::Broken),
        ] {
            for event in [
                format!(
                    r#"{{"type":"response.failed","response":{{"error":{{"code":"{code}","message":"m"}}}}}}"#
                ),
                format!(
                    r#"{{"type":"error","code":"{code}","message":"m","param":null,"sequence_number":3}}"#
                ),
                format!(r#"{{"type":"error","error":{{"type":"{code}","code":"{code}","message":"m"}}}}"#),
            ] {
                assert_eq!(UpstreamError::read(event.as_bytes()).message, "m");
                assert_eq!(in_stream(&event), (status, verdict), "{event}");
            }
        }
    }

    #[test]
    fn trouble_of_the_operators_own_account_is_never_the_clients() {
        for (status, body) in [
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."}}"#,
            ),
            (402, r#"{"type":"error","error":{"type":"billing_error","message":"m"}}"#),
            (
                429,
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
            ),
            (
                429,
                r#"{"error":{"code":"1113","message":"Insufficient balance or no resource package. Please recharge."}}"#,
            ),
            (429, r#"{"error":{"code":"1112","message":"Your account has been locked"}}"#),
            (
                400,
                r#"{"error":{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing."}}"#,
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
            ),
        ] {
            assert_eq!(UpstreamError::read(body.as_bytes()).verdict(status), Verdict::Broken, "{body}");
        }
    }
}
