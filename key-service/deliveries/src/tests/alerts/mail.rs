//! Tests of mails, with servers that accept, refuse, hang or cannot use TLS.

use super::*;
use crate::tests::mail_server::{MailServer, Mood};

fn mailer(server: &MailServer) -> Mailer {
    let mut mailer = Mailer::new(&server.url().into(), "Faregate <faregate@example.com>").unwrap();
    mailer.deadline = Duration::from_secs(1);
    mailer.pause = Duration::ZERO;
    mailer
}

#[tokio::test]
async fn a_mail_says_what_happened_and_what_to_do() {
    let server = MailServer::start(|_| Mood::Accepts).await;
    let desk = Desk::open(Some(mailer(&server))).await;
    let key = desk.key("Grüße", None).await;
    let alert = desk.alert(Rule::Refused, Channel::Email, "ops@example.com").await;
    desk.exceed(key, USD / 2).await;
    desk.pass(Duration::from_secs(1)).await;
    let [mail] = &server.mails()[..] else { panic!("one mail: {:?}", server.mails()) };
    for line in [
        "MAIL FROM:<faregate@example.com>",
        "RCPT TO:<ops@example.com>",
        "From: Faregate <faregate@example.com>",
        "To: ops@example.com",
        "Content-Type: text/plain; charset=utf-8",
    ] {
        assert!(mail.lines().any(|got| got.starts_with(line)), "{line}: {mail}");
    }
    let id = desk.messages(&alert).await[0].event;
    assert!(mail.contains(&format!("Message-ID: <{id}@example.com>")), "{mail}");
    let text = mail.replace("=\n", "");
    assert!(text.contains(&format!("https://models.example.com/dashboard/keys/{key}")), "{mail}");
    assert!(text.contains("Raise the limit or add credit"), "{mail}");
    assert_eq!(desk.answers(&alert).await, [ReceiverAnswer::Status(250)]);
    desk.office.management.test_alert(desk.account, alert.id).await.unwrap();
    let again = desk.office.management.test_alert(desk.account, alert.id).await;
    assert_eq!(again, Err(Error::Refused(Refused::TestedLately)));
    desk.pass(Duration::from_secs(1)).await;
    assert!(server.mails()[1].contains("this is a test"), "{:?}", server.mails());
}

#[tokio::test]
async fn a_mail_server_that_hangs_refuses_or_is_away_is_tried_again_with_an_end() {
    let moods: [fn(usize) -> Mood; 2] = [
        |n| if n < 3 { Mood::Hangs } else { Mood::Accepts },
        |n| if n < 3 { Mood::Refuses(451) } else { Mood::Accepts },
    ];
    for mood in moods {
        let server = MailServer::start(mood).await;
        let desk = Desk::open(Some(mailer(&server))).await;
        let key = desk.key("one", None).await;
        let alert = desk.alert(Rule::Refused, Channel::Email, "ops@example.com").await;
        desk.exceed(key, USD / 2).await;
        for _ in 0..6 {
            desk.pass(Duration::from_mins(1)).await;
        }
        let attempts = desk.answers(&alert).await;
        assert_eq!((attempts.len(), &attempts[0]), (4, &ReceiverAnswer::Status(250)), "{attempts:?}");
        assert_eq!((server.mails().len(), server.connections()), (1, 4));
    }
    // A server that is down: nothing listens at its address.
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("smtp://{}", gone.local_addr().unwrap());
    drop(gone);
    let desk = Desk::open(Some(Mailer::new(&url.into(), "faregate@example.com").unwrap())).await;
    let key = desk.key("one", None).await;
    let alert = desk.alert(Rule::Refused, Channel::Email, "ops@example.com").await;
    desk.exceed(key, USD / 2).await;
    desk.pass(Duration::from_secs(1)).await;
    assert_eq!(desk.answers(&alert).await.len(), 1);
    for _ in 0..30 {
        desk.pass(Duration::from_hours(1)).await;
    }
    let last = desk.messages(&alert).await[0].clone();
    assert!(
        matches!(&last.answer, ReceiverAnswer::None(why) if why.starts_with("cannot connect")),
        "{last:?}"
    );
    for _ in 0..5 {
        desk.pass(Duration::from_hours(1)).await;
    }
    assert_eq!(desk.messages(&alert).await[0], last, "it is given up after a day");
    assert!(desk.office.management.alert(desk.account, alert.id).await.unwrap().enabled);
}

#[tokio::test]
async fn what_a_mail_server_refuses_for_good_is_not_sent_again() {
    let server = MailServer::start(|_| Mood::Refuses(550)).await;
    let desk = Desk::open(Some(mailer(&server))).await;
    let key = desk.key("one", None).await;
    let alert = desk.alert(Rule::Refused, Channel::Email, "nobody@example.com").await;
    desk.exceed(key, USD / 2).await;
    for _ in 0..3 {
        desk.pass(Duration::from_hours(1)).await;
    }
    assert_eq!(desk.answers(&alert).await, [ReceiverAnswer::Status(550)]);
}

#[tokio::test]
async fn an_account_sends_one_test_a_minute_even_if_it_creates_alerts_anew() {
    let server = MailServer::start(|_| Mood::Accepts).await;
    let desk = Desk::open(Some(mailer(&server))).await;
    for n in 0..20 {
        let alert = desk.alert(Rule::Refused, Channel::Email, &format!("stranger-{n}@example.com")).await;
        let tested = desk.office.management.test_alert(desk.account, alert.id).await;
        assert_eq!(tested.is_ok(), n == 0, "{n}");
        desk.pass(Duration::from_secs(1)).await;
        let by = desk.office.management.by(desk.account, Actor::System);
        Alert::end(by, alert.id).await.unwrap();
    }
    assert_eq!(server.mails().len(), 1);
    let alert = desk.alert(Rule::Refused, Channel::Email, "ops@example.com").await;
    desk.pass(Duration::from_mins(1)).await;
    desk.office.management.test_alert(desk.account, alert.id).await.unwrap();
}

#[tokio::test]
async fn a_mail_server_that_says_nothing_is_left_alone_for_a_while() {
    let server = MailServer::start(|_| Mood::Hangs).await;
    let mut patient = mailer(&server);
    patient.pause = Duration::from_hours(1);
    let desk = Desk::open(Some(patient)).await;
    let key = desk.key("one", None).await;
    let first = desk.alert(Rule::Refused, Channel::Email, "ops@example.com").await;
    desk.exceed(key, USD / 2).await;
    desk.pass(Duration::from_secs(1)).await;
    assert_eq!(desk.answers(&first).await, [no_answer("no answer in time")]);
    let second = desk.alert(Rule::LimitShare, Channel::Email, "ops@example.com").await;
    desk.exceed(key, USD / 4).await;
    desk.pass(Duration::from_secs(1)).await;
    let left_alone = no_answer("not tried, because the mail server did not answer a moment ago");
    assert_eq!(desk.answers(&second).await, [left_alone]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_mail_that_was_accepted_is_not_sent_again_if_the_server_does_not_end_the_connection() {
    let server = MailServer::start(|_| Mood::NeverEnds).await;
    let desk = Desk::open(Some(mailer(&server))).await;
    let key = desk.key("one", None).await;
    let alert = desk.alert(Rule::Refused, Channel::Email, "ops@example.com").await;
    desk.exceed(key, USD / 2).await;
    for _ in 0..3 {
        desk.pass(Duration::from_mins(1)).await;
    }
    assert_eq!(desk.answers(&alert).await, [ReceiverAnswer::Status(250)]);
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn a_server_without_the_tls_that_its_url_asks_for_gets_no_mail() {
    for (scheme, query, says) in [
        ("smtp", "?tls=required", "the server does not support what its URL asks for"),
        ("smtps", "", "cannot establish a TLS connection"),
    ] {
        let server = MailServer::start(|_| Mood::Accepts).await;
        let url = format!("{scheme}://user:secret@{}{query}", server.address);
        let desk = Desk::open(Some(Mailer::new(&url.into(), "faregate@example.com").unwrap())).await;
        let key = desk.key("one", None).await;
        let alert = desk.alert(Rule::Refused, Channel::Email, "ops@example.com").await;
        desk.exceed(key, USD / 2).await;
        desk.pass(Duration::from_secs(1)).await;
        assert_eq!(desk.answers(&alert).await, [no_answer(says)]);
        assert_eq!((server.mails().len(), server.connections()), (0, 1), "{scheme}");
    }
}

#[test]
fn a_password_is_sent_with_tls_or_to_this_machine() {
    let mailer = |url: &str| Mailer::new(&url.into(), "faregate@example.com").map(drop);
    for good in [
        "smtps://user:secret@mail.example.com",
        "smtp://user:secret@mail.example.com?tls=required",
        "smtp://user:secret@127.0.0.1:2525",
        "smtp://user:secret@[::1]",
        "smtps://user%40example.com:p%3A%2F%40ss@mail.example.com/gateway.example.com",
        "smtp://mail.example.com",
    ] {
        assert_eq!(mailer(good), Ok(()), "{good}");
    }
    for bad in ["smtp://user:secret@mail.example.com", "smtp://u:p@mail.example.com?tls=opportunistic"] {
        assert_eq!(mailer(bad), Err(crate::BadMail::Unencrypted), "{bad}");
    }
    for bad in [
        "mail.example.com",
        "http://mail.example.com",
        "smtp://mail.example.com?tls=maybe",
        "smtp://",
        "smtps://user@mail.example.com",
    ] {
        assert_eq!(mailer(bad), Err(crate::BadMail::Url), "{bad}");
    }
    assert_eq!(Mailer::new(&"smtp://mail.example.com".into(), "nobody").map(drop), Err(crate::BadMail::From));
}
