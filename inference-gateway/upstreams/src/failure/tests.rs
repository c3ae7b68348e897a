use bytes::Bytes;
use request::{chat, responses};
use shared_catalog::Catalog;

use super::*;

#[test]
fn an_upstreams_words_forge_no_line_of_the_log() {
    let kind = "x\n2026-01-01 INFO all is well\u{1b}[2J\u{202e}".repeat(100);
    let error = UpstreamError { kind, ..UpstreamError::default() };
    for failure in [broken(&error, 500), UpstreamFailure::Unreachable("a\r\nb".into())] {
        let logged = failure.to_string();
        assert!(!logged.contains(|c: char| shared::text::is_control(c)), "{logged}");
        assert!(logged.chars().count() < 300, "{logged}");
    }
}

#[test]
fn a_vendors_words_keep_their_place_where_the_client_wrote_the_body() {
    let catalogue = r#"
            [service]
            name = "f"
            provider = "p"
            docs = "https://docs.example"
            [[model]]
            id = "m"
            owned_by = "me"
            context_window = 1000
            max_output_tokens = 100
            price = { input = "1", cached_input = "1", output = "1" }
            [[model.upstream]]
            kind = "openai"
            speaks = ["responses"]
            url = "http://127.0.0.1:1/v1"
            model = "v"
        "#;
    let model = Catalog::parse(catalogue, "test").unwrap().models.remove(0);
    let upstream = &model.upstreams[0];
    let error = UpstreamError::read(
            br#"{"error":{"message":"Too many tools. See https://example.com/x","param":"tools[9]","type":"invalid_request_error"}}"#,
        );
    let refused = |status, request: request::Request| {
        let forward = request.forward_within(&model, &mut |_| Ok(())).unwrap();
        match of_error(&error, status, upstream, &forward) {
            UpstreamFailure::Refused(ApiError { code, message, param, .. }) => {
                (code, message.into_owned(), param)
            }
            other => panic!("{other:?}"),
        }
    };
    let passed = || responses::parse(&Bytes::from(r#"{"model":"m","input":"a"}"#), |_| true).unwrap();
    let chat = r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#;
    let translated = || chat::parse(&Bytes::from(chat)).unwrap();
    let (words, place) = ("Too many tools.".to_owned(), Some("tools[9]".to_owned()));
    for (status, code) in [(400, Code::InvalidValue), (413, Code::RequestTooLarge)] {
        assert_eq!(refused(status, passed()), (code, words.clone(), place.clone()));
        assert_eq!(refused(status, translated()), (code, words.clone(), None));
    }
}

#[test]
fn what_a_clients_query_or_headers_may_cause_is_not_judged_alone() {
    use AttemptOutcome::{Failed, FailedWithHead, Forbidden, Limited, Overloaded, Unreachable};
    let account = AccountId::generate(&shared::clock::System);
    let refused = UpstreamFailure::CredentialRefused;
    for (failure, without, with) in [
        (refused(401), Failed, FailedWithHead(account)),
        (refused(403), Forbidden(account), FailedWithHead(account)),
        (broken(&UpstreamError::default(), 500), Failed, FailedWithHead(account)),
        (UpstreamFailure::Overloaded, Overloaded, Limited(account)),
        // A query can make neither a server silent nor its address wrong.
        (UpstreamFailure::Timeout, Failed, Failed),
        (UpstreamFailure::Unreachable(String::new()), Unreachable, Unreachable),
    ] {
        let outcomes = [false, true].map(|with_head| failure.outcome_of_passed(account, with_head));
        assert_eq!(outcomes, [without, with], "{failure:?}");
    }
}

#[test]
fn two_servers_fail_alike_where_the_request_may_be_the_cause() {
    let broken = |status| broken(&UpstreamError::default(), status);
    assert!(broken(500).is_alike(&broken(500)) && !broken(500).is_alike(&broken(502)));
    assert!(UpstreamFailure::HungUp("a".into()).is_alike(&UpstreamFailure::HungUp("b".into())));
    let refused = UpstreamFailure::CredentialRefused;
    assert!(refused(401).is_alike(&refused(401)) && !refused(401).is_alike(&refused(403)));
    for own in
        [UpstreamFailure::Unreachable(String::new()), UpstreamFailure::Overloaded, UpstreamFailure::Timeout]
    {
        assert!(!own.is_alike(&own), "{own:?}");
    }
}
