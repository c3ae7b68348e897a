//! Each kind of invalid input gets its exact status, code and param, and changes nothing.

use super::*;

#[tokio::test]
async fn bad_fields_are_refused_on_create_and_on_patch_alike_and_change_nothing() {
    let desk = Desk::open().await;
    let id = desk.created_id(r#"{"label":"a","limit":25,"expires_at":"2027-12-31T23:59:59Z"}"#).await;
    let before = desk.everything().await;
    let long = "x".repeat(81);
    let crabs = "🦀".repeat(81);
    for (member, code, param) in [
        (format!(r#""label":"{long}""#), "string_above_max_length", "label"),
        (format!(r#""label":"{crabs}""#), "string_above_max_length", "label"),
        (r#""label":"a\nb""#.into(), "invalid_value", "label"),
        (r#""label":"\u0000""#.into(), "invalid_value", "label"),
        (r#""label":"\u0085""#.into(), "invalid_value", "label"),
        (r#""label":"invoice \u202etxt.exe""#.into(), "invalid_value", "label"),
        (r#""label":"a\u2028b""#.into(), "invalid_value", "label"),
        (r#""label":null"#.into(), "invalid_type", "label"),
        (r#""label":5"#.into(), "invalid_type", "label"),
        (r#""label":["a"]"#.into(), "invalid_type", "label"),
        (r#""limit":-1"#.into(), "decimal_below_min_value", "limit"),
        (r#""limit":-0.000000001"#.into(), "decimal_below_min_value", "limit"),
        (r#""limit":-1e300"#.into(), "decimal_below_min_value", "limit"),
        (r#""limit":1000000.000000001"#.into(), "decimal_above_max_value", "limit"),
        (r#""limit":1000000.0000000006"#.into(), "decimal_above_max_value", "limit"),
        (r#""limit":1e300"#.into(), "decimal_above_max_value", "limit"),
        (r#""limit":1e99999999999999999999"#.into(), "decimal_above_max_value", "limit"),
        (r#""limit":0.0000000001"#.into(), "invalid_value", "limit"),
        (r#""limit":-1e-400"#.into(), "invalid_value", "limit"),
        (r#""limit":"25""#.into(), "invalid_type", "limit"),
        (r#""limit":true"#.into(), "invalid_type", "limit"),
        (r#""limit":{}"#.into(), "invalid_type", "limit"),
        (r#""expires_at":1893456000"#.into(), "invalid_type", "expires_at"),
        (r#""expires_at":false"#.into(), "invalid_type", "expires_at"),
        (r#""expires_at":"""#.into(), "invalid_value", "expires_at"),
        (r#""expires_at":"2027-12-31""#.into(), "invalid_value", "expires_at"),
        (r#""expires_at":"2027-02-30T00:00:00Z""#.into(), "invalid_value", "expires_at"),
        (r#""expires_at":"2027-12-31T23:59:60Z""#.into(), "invalid_value", "expires_at"),
        (r#""expires_at":"10000-01-01T00:00:00Z""#.into(), "invalid_value", "expires_at"),
        (r#""expires_at":" 2027-12-31T23:59:59Z""#.into(), "invalid_value", "expires_at"),
        (r#""expires_at":"2027-12-31T23:59:59Z ""#.into(), "invalid_value", "expires_at"),
        (r#""disabled":null"#.into(), "invalid_type", "disabled"),
        (r#""disabled":"true""#.into(), "invalid_type", "disabled"),
        (r#""disabled":1"#.into(), "invalid_type", "disabled"),
        (r#""limt":25"#.into(), "unknown_parameter", "limt"),
        (r#""Limit":25"#.into(), "unknown_parameter", "Limit"),
        (r#""":25"#.into(), "unknown_parameter", ""),
        (r#""used":0"#.into(), "unknown_parameter", "used"),
        (r#""id":"ak_0""#.into(), "unknown_parameter", "id"),
        (r#""key":null"#.into(), "unknown_parameter", "key"),
        (r#""revoked_at":null"#.into(), "unknown_parameter", "revoked_at"),
    ] {
        // Each bad member is sent alone, and after a valid member that must not be applied either.
        for body in [format!("{{{member}}}"), format!(r#"{{"label":"changed",{member}}}"#)] {
            if body.matches("\"label\"").count() > 1 {
                continue;
            }
            desk.create(&body).await.is_error(400, code, Some(param));
            desk.patch(&id, &body).await.is_error(400, code, Some(param));
        }
    }
    assert_eq!(desk.everything().await, before);
}

#[tokio::test]
async fn a_body_that_is_no_json_object_is_refused_and_changes_nothing() {
    let desk = Desk::open().await;
    let id = desk.created_id("{}").await;
    let before = desk.everything().await;
    let deep = format!(r#"{{"label":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let bad: [&[u8]; 16] = [
        b"",
        b" ",
        b"null",
        b"[]",
        b"\"label\"",
        b"{",
        b"{\"label\":}",
        b"{\"label\":\"a\",}",
        b"{'label':'a'}",
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b"{\"limit\":01}",
        b"{\"limit\":NaN}",
        b"{\"label\":\"\xff\"}",
        b"{\"label\":\"\\ud800\"}",
        b"{\"label\":\"a\",\"la\\u0062el\":\"b\"}",
    ];
    for body in bad {
        desk.call(Method::POST, KEYS, body).await.is_error(400, "invalid_json", None);
        desk.call(Method::PATCH, &format!("{KEYS}/{id}"), body).await.is_error(400, "invalid_json", None);
    }
    assert_eq!(desk.create(&deep).await.status, 400);
    assert_eq!(desk.everything().await, before);
}

#[tokio::test]
async fn a_body_of_another_type_or_beyond_the_limit_is_refused_in_this_order() {
    let desk = Desk::open().await;
    let id = desk.created_id("{}").await;
    let before = desk.everything().await;
    let fits = format!("{}{{}}", " ".repeat((256 << 10) - 2));
    let (path, too_large) = (format!("{KEYS}/{id}"), format!("{fits} "));
    for (method, path) in [(Method::POST, KEYS), (Method::PATCH, &path)] {
        for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
            let mut request = desk.request(method.clone(), path).body(Body::from(too_large.clone())).unwrap();
            request.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
            desk.send(request).await.is_error(415, "unsupported_media_type", None);
        }
        desk.call(method.clone(), path, too_large.clone()).await.is_error(413, "request_too_large", None);
        let announced = desk.request(method.clone(), path).header("content-length", "262145");
        let answer = desk.send(announced.body(Body::from("{}")).unwrap()).await;
        answer.is_error(413, "request_too_large", None);
    }
    assert_eq!(desk.everything().await, before);
    assert_eq!(desk.call(Method::POST, KEYS, fits).await.status, 201);
}

#[tokio::test]
async fn unknown_routes_and_wrong_methods_are_answered_with_or_without_a_credential() {
    let desk = Desk::open().await;
    let with = |method: &Method, path: &str| desk.request(method.clone(), path);
    let without = |method: &Method, path: &str| Request::builder().method(method.clone()).uri(path);
    for path in
        ["/", "/v1", "/v1/management", "/v1/management/key", "/v1/management/keys/a/b", "/V1/management/keys"]
    {
        for request in [with(&Method::GET, path), without(&Method::GET, path), without(&Method::POST, path)] {
            desk.send(request.body(Body::empty()).unwrap()).await.is_error(404, "unknown_url", None);
        }
    }
    let one = format!("{KEYS}/ak_0");
    for (method, path, allow) in [
        (Method::PUT, KEYS, ["GET", "HEAD", "POST"].as_slice()),
        (Method::DELETE, KEYS, &["GET", "HEAD", "POST"]),
        (Method::OPTIONS, KEYS, &["GET", "HEAD", "POST"]),
        (Method::POST, &one, &["GET", "HEAD", "PATCH", "DELETE"]),
        (Method::PUT, &one, &["GET", "HEAD", "PATCH", "DELETE"]),
    ] {
        for request in [with(&method, path), without(&method, path)] {
            let answer = desk.send(request.body(Body::empty()).unwrap()).await;
            answer.is_error(405, "method_not_allowed", None);
            let mut allowed: Vec<&str> =
                answer.headers["allow"].to_str().unwrap().split(',').map(str::trim).collect();
            let mut expected = allow.to_vec();
            allowed.sort_unstable();
            expected.sort_unstable();
            assert_eq!(allowed, expected);
        }
    }
}

#[tokio::test]
async fn head_is_answered_where_get_is() {
    let desk = Desk::open().await;
    let id = desk.created_id("{}").await;
    for (path, status) in [(KEYS.to_owned(), 200), (format!("{KEYS}/{id}"), 200), (format!("{KEYS}/x"), 404)]
    {
        let answer = desk.call(Method::HEAD, &path, "").await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (status, ""));
        let get = desk.get(&path).await;
        assert_eq!(answer.headers["content-length"], get.text.len().to_string());
    }
}

#[tokio::test]
async fn a_store_that_is_away_closes_every_door_and_is_not_described() {
    let desk = Desk::open().await;
    let id = desk.created_id("{}").await;
    let before = desk.everything().await;
    let one = format!("{KEYS}/{id}");
    for (method, path) in [
        (Method::GET, KEYS),
        (Method::POST, KEYS),
        (Method::GET, &one),
        (Method::PATCH, &one),
        (Method::DELETE, &one),
    ] {
        // The store fails from the start, or right after the credential has been checked.
        for calls in [0, 1] {
            desk.office.records.fail_after(calls);
            let answer = desk.call(method.clone(), path, "{}").await;
            answer.is_error(503, "service_unavailable", None);
            assert_eq!(answer.headers["retry-after"], "2");
            assert!(!answer.text.contains("10.0.0.7"), "{}", answer.text);
        }
    }
    desk.office.records.recover();
    assert_eq!(desk.everything().await, before);
}

#[tokio::test]
async fn no_cross_origin_caller_is_let_in() {
    let desk = Desk::open().await;
    let request = desk.request(Method::GET, KEYS).header("origin", "https://example.com");
    let answer = desk.send(request.body(Body::empty()).unwrap()).await;
    assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("access-control-")));
}
