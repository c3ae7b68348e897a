//! The expiry of certificates in use: a metric, and warnings before clients begin to refuse them.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use chrono::NaiveDateTime;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use shared::clock::{Clock, System};
use shared_config::Pem;
use tokio::time::sleep;

use super::pem::certificates;

/// How long before a certificate's expiry the log starts to warn.
const WARNED_BEFORE: Duration = Duration::from_hours(14 * 24);
/// Time between two warnings, and between two checks.
const WARNED_EVERY: Duration = Duration::from_hours(24);

/// When each certificate in use expires, in seconds since 1970, by the setting that names its file.
static IN_USE: LazyLock<Mutex<BTreeMap<&'static str, i64>>> = LazyLock::new(Mutex::default);

/// Which of a file's certificates decides when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decisive {
    /// A chain expires with its first certificate.
    First,
    /// Authorities can replace each other, so the last one to expire decides.
    Last,
}

/// Returns when a file's certificates expire; `None` if that cannot be read.
fn not_after(pem: &Pem, decisive: Decisive) -> Option<i64> {
    let ends = certificates(pem).ok()?;
    let ends = ends.iter().filter_map(end_of);
    match decisive {
        Decisive::First => ends.min(),
        Decisive::Last => ends.max(),
    }
}

/// Exports when the certificates now in use expire. Warns of those that expire soon.
pub fn show(in_use: &[(&Pem, Decisive)]) {
    let ends = in_use.iter().filter_map(|(pem, decisive)| Some((pem.setting(), not_after(pem, *decisive)?)));
    for (setting, end) in ends {
        #[expect(clippy::cast_precision_loss, reason = "a metric")]
        let seconds = end as f64;
        metrics::gauge!("faregate_certificate_not_after_timestamp_seconds", "setting" => setting)
            .set(seconds);
        warn(setting, end);
        IN_USE.lock().insert(setting, end);
    }
}

/// Warns daily of certificates that expire soon.
pub async fn keep_warning() {
    loop {
        sleep(WARNED_EVERY).await;
        for (setting, end) in in_use() {
            warn(setting, end);
        }
    }
}

fn warn(setting: &'static str, end: i64) {
    if let Some(warning) = warning(end) {
        tracing::warn!(setting, "{warning}; renew it and send SIGHUP");
    }
}

pub fn in_use() -> BTreeMap<&'static str, i64> {
    IN_USE.lock().clone()
}

/// Returns a warning about a certificate that has expired or expires soon.
pub fn warning(end: i64) -> Option<String> {
    let left = end.saturating_sub(System.now().seconds());
    if left <= 0 {
        Some(format!("the certificate expired {} days ago", -days_left(end)))
    } else if left < i64::try_from(WARNED_BEFORE.as_secs()).unwrap_or(i64::MAX) {
        Some(format!("the certificate expires in {} days", days_left(end)))
    } else {
        None
    }
}

pub fn days_left(end: i64) -> i64 {
    end.saturating_sub(System.now().seconds()) / (24 * 3600)
}

/// Returns `notAfter` of a certificate (RFC 5280, 4.1), in seconds since 1970.
fn end_of(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    let (tag, _, after) = element(rest)?;
    if tag == EXPLICIT_VERSION {
        rest = after;
    }
    // Skips the serial number, the algorithm and the issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, end) = element(validity)?;
    let (tag, time, _) = element(end)?;
    let time = std::str::from_utf8(time).ok()?;
    let with_century = match tag {
        // Two-digit years mean 1950 to 2049.
        UTC_TIME if time < "50" => format!("20{time}"),
        UTC_TIME => format!("19{time}"),
        GENERALIZED_TIME => time.to_owned(),
        _ => return None,
    };
    let time = NaiveDateTime::parse_from_str(&with_century, "%Y%m%d%H%M%SZ").ok()?;
    Some(time.and_utc().timestamp())
}

/// Tags of the DER elements on the way to `notAfter`.
const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Splits off the first element of DER: its tag, its content, and the rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], mut rest) = der.split_first_chunk::<2>()?;
    let mut size = usize::from(length);
    if length & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(usize::from(length & 0x7f))?;
        if digits.len() > size_of::<u32>() {
            return None;
        }
        size = digits.iter().fold(0, |size, digit| size << 8 | usize::from(*digit));
        rest = after;
    }
    let (content, after) = rest.split_at_checked(size)?;
    Some((tag, content, after))
}

#[cfg(test)]
mod tests {
    use certificates::Authority;

    use super::*;

    fn ending(year: i32, month: u8, day: u8) -> String {
        Authority::new().issue_until("localhost", (year, month, day)).certificate
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms_of_time() {
        let end = |text: String, decisive| {
            let pem = Pem::new("FAREGATE_TLS_CERT", "cert.pem", text.into());
            not_after(&pem, decisive)
        };
        assert_eq!(end(ending(2020, 2, 29), Decisive::First), Some(1_582_934_400));
        assert_eq!(end(ending(2049, 12, 31), Decisive::First), Some(2_524_521_600));
        assert_eq!(end(ending(2050, 1, 1), Decisive::First), Some(2_524_608_000));
        let two = ending(2020, 2, 29) + &ending(2050, 1, 1);
        assert_eq!(end(two.clone(), Decisive::First), Some(1_582_934_400), "a chain");
        assert_eq!(end(two, Decisive::Last), Some(2_524_608_000), "authorities");
        assert_eq!(
            end("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n".into(), Decisive::First),
            None
        );
    }
}
