//! Deadlines of unary calls: the `grpc-timeout` that a caller sends.

use std::time::Duration;

use axum::{
    extract::Request,
    http::HeaderMap,
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio::time::timeout;
use tonic::{Status, body::Body};

/// Header of the gRPC protocol that limits how long a call may take.
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// Middleware: drops a call after the caller's deadline.
pub async fn drop_late_calls(request: Request, next: Next) -> Response {
    let Some(deadline) = requested(request.headers()) else { return next.run(request).await };
    timeout(deadline, next.run(request)).await.unwrap_or_else(|_| {
        Status::deadline_exceeded("the call took longer than its caller waits")
            .into_http::<Body>()
            .into_response()
    })
}

/// Parses the deadline: at most eight digits and a unit. Anything else is ignored.
fn requested(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_hours(count)),
        "M" => Some(Duration::from_mins(count)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_digits_and_a_unit() {
        let read = |value: &str| {
            requested(&[(GRPC_TIMEOUT.parse().unwrap(), value.parse().unwrap())].into_iter().collect())
        };
        assert_eq!(read("5S"), Some(Duration::from_secs(5)));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("99999999H"), Some(Duration::from_hours(99_999_999)));
        for wrong in ["", "S", "5", "5s", "-5S", "123456789S", "5 S", "ü"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
