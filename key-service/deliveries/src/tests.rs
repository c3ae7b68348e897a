//! Tests with receivers on this machine, and with addresses that must not be reached.

mod alerts;
mod deliveries;
mod mail_server;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use certificates::{Authority, Issued};
use parking_lot::Mutex;
use shared::{
    ids::{EventId, WebhookId},
    network::Network,
    time::Timestamp,
};
use shared_config::Pem;
use shared_door::tls::MutualTls;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};

use super::{
    connector::{Connector, Resolver},
    sender::Sender,
};
use domain::{
    digest::Pepper,
    webhook::{Delivery, ReceiverAnswer, WebhookSecret, WebhookUrl},
};

const NOW: Timestamp = Timestamp::from_millis(1_795_140_665_678);
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const LOOPBACK: &str = "the host resolves to a loopback address";
const INSIDE: &str = "the host resolves to an address that is not public";
const BODY: &str = r#"{"type":"key.created"}"#;

/// A receiver on this machine that keeps the requests that it gets, and counts connections.
struct Receiver {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    /// Starts a receiver that answers every request with these bytes.
    async fn answers(answer: &'static str) -> Self {
        Self::start(None, move |_| answer).await
    }

    /// Starts a receiver that answers request `n`, counted from zero, with `answer(n)`.
    async fn start(tls: Option<MutualTls>, answer: impl Fn(usize) -> &'static str + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::default());
        let (accepted, kept) = (Arc::clone(&connections), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer(accepted.fetch_add(1, Ordering::SeqCst));
                match &tls {
                    None => serve(stream, &kept, answer).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.acceptor().accept(stream).await {
                            serve(stream, &kept, answer).await;
                        }
                    }
                }
            }
        });
        Self { address, connections, requests }
    }

    fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, requests: &Mutex<Vec<String>>, answer: &str) {
    let (mut request, mut buffer) = (String::new(), [0; 4096]);
    while !is_whole(&request) {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => request.push_str(&String::from_utf8_lossy(&buffer[..read])),
            _ => break,
        }
    }
    requests.lock().push(request);
    let _ = stream.write_all(answer.as_bytes()).await;
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    header(head, "content-length").parse() == Ok(body.len())
}

fn header<'a>(request: &'a str, name: &str) -> &'a str {
    let named = |line: &'a str| line.split_once(": ").filter(|(found, _)| *found == name);
    request.lines().find_map(named).map_or("", |(_, value)| value)
}

async fn sent(sender: &Sender, url: &str) -> ReceiverAnswer {
    let event = EventId::new(NOW, [3; 10]);
    let delivery = Delivery::new(event, Some(1), "key.created".into(), BODY.into(), NOW);
    sender.send(&WebhookUrl::stored(url).unwrap(), &secret(), &delivery, NOW).await
}

fn secret() -> WebhookSecret {
    WebhookSecret::new(&Pepper::new([7; 32]), WebhookId::new(NOW, [7; 10]))
}

fn no_answer(reason: &str) -> ReceiverAnswer {
    ReceiverAnswer::None(reason.into())
}

/// Returns a sender whose DNS lookups return these addresses, one after the other, and a counter of the lookups.
fn looking_up(addresses: &[&str], allowed: &[Network]) -> (Sender, Arc<AtomicUsize>) {
    let addresses: Vec<_> =
        addresses.iter().map(|address| address.parse::<std::net::IpAddr>().unwrap()).collect();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let resolver: Resolver = Arc::new(move |_, port| {
        let n = counted.fetch_add(1, Ordering::SeqCst).min(addresses.len() - 1);
        let found = vec![SocketAddr::new(addresses[n], port)];
        Box::pin(async move { Ok(found) })
    });
    (Sender::over(Connector::with_resolver(allowed, resolver), None), asked)
}

#[tokio::test]
async fn a_delivery_is_a_signed_post_of_the_event() {
    let receiver = Receiver::answers("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(sent(&Sender::new(&[]), &receiver.url()).await, ReceiverAnswer::Status(204));
    let [request] = &receiver.requests()[..] else { panic!("one request") };
    let event = EventId::new(NOW, [3; 10]);
    let signature = secret().sign(event, NOW, BODY);
    for line in [
        "POST /hook?a=b HTTP/1.1".to_owned(),
        format!("host: {}", receiver.address),
        "content-type: application/json".to_owned(),
        format!("webhook-id: {event}"),
        "webhook-timestamp: 1795140665".to_owned(),
        format!("webhook-signature: {signature}"),
    ] {
        assert!(request.lines().any(|got| got == line), "{line:?} in {request}");
    }
    assert!(request.ends_with(BODY));
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let inside = Receiver::answers(OK).await;
    let head =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", inside.url());
    let receiver = Receiver::answers(head.leak()).await;
    assert_eq!(sent(&Sender::new(&[]), &receiver.url()).await, ReceiverAnswer::Status(307));
    assert_eq!((receiver.requests().len(), inside.requests().len()), (1, 0));
}

#[tokio::test]
async fn a_receiver_that_says_nothing_is_given_up_and_a_status_counts_without_the_body() {
    let mut sender = Sender::new(&[]);
    sender.deadline = Duration::from_secs(1);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let silent = format!("http://{}/", listener.local_addr().unwrap());
    assert_eq!(sent(&sender, &silent).await, no_answer("no answer in time"));
    tokio::spawn(async move {
        let (_silent, _) = listener.accept().await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nless").await.unwrap();
        std::future::pending::<()>().await;
    });
    assert_eq!(sent(&sender, &silent).await, ReceiverAnswer::Status(200));
}

#[tokio::test]
async fn a_receiver_whose_interim_heads_do_not_end_has_not_answered() {
    let interim = |heads: usize| ("HTTP/1.1 100 Continue\r\n\r\n".repeat(heads) + OK).leak();
    let patient = Receiver::answers(interim(16)).await;
    assert_eq!(sent(&Sender::new(&[]), &patient.url()).await, ReceiverAnswer::Status(200));
    let endless = Receiver::answers(interim(100_000)).await;
    let expected = no_answer("the answer has no final head within 16 interim heads and 64 KiB");
    assert_eq!(sent(&Sender::new(&[]), &endless.url()).await, expected);
}

#[tokio::test]
async fn a_name_that_leads_inside_is_not_connected() {
    let receiver = Receiver::answers(OK).await;
    let url = format!("https://hooks.example:{}/", receiver.address.port());
    for (address, expected) in [
        ("127.0.0.1", LOOPBACK),
        ("::1", LOOPBACK),
        ("0.0.0.0", LOOPBACK),
        ("10.0.0.5", INSIDE),
        ("172.16.0.1", INSIDE),
        ("192.168.1.1", INSIDE),
        ("fd00::1", INSIDE),
        ("fe80::1", INSIDE),
    ] {
        let (sender, _) = looking_up(&[address], &[]);
        assert_eq!(sent(&sender, &url).await, no_answer(expected), "{address}");
    }
    let local = format!("https://localhost:{}/", receiver.address.port());
    assert_eq!(sent(&Sender::new(&[]), &local).await, no_answer(LOOPBACK));
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn decimal_octal_and_hexadecimal_spellings_of_this_machine_are_not_connected() {
    let receiver = Receiver::answers(OK).await;
    // The system's resolver reads these as 127.0.0.1. A name that is all digits cannot be in a certificate.
    for host in ["2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1"] {
        let answer = sent(&Sender::new(&[]), &format!("https://{host}:{}/", receiver.address.port())).await;
        let is_refused =
            answer == no_answer(LOOPBACK) || answer == no_answer("cannot establish a TLS connection");
        assert!(is_refused, "{host}: {answer:?}");
    }
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn addresses_within_ipv6_are_not_connected_where_they_lead_inside() {
    let receiver = Receiver::answers(OK).await;
    let port = receiver.address.port();
    for (address, expected) in [
        ("::ffff:127.0.0.1", LOOPBACK),
        ("64:ff9b::7f00:1", LOOPBACK),
        ("::ffff:10.0.0.5", INSIDE),
        ("64:ff9b::a00:5", INSIDE),
        ("2002:a00:5::", INSIDE),
    ] {
        let (sender, _) = looking_up(&[address], &[]);
        let by_name = sent(&sender, &format!("https://hooks.example:{port}/")).await;
        assert_eq!(by_name, no_answer(expected), "{address}");
        let literally = sent(&Sender::new(&[]), &format!("https://[{address}]:{port}/")).await;
        assert_eq!(literally, no_answer(expected), "{address}");
    }
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn metadata_services_are_not_connected() {
    for address in ["169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"] {
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let literally = sent(&Sender::new(&[]), &format!("https://{host}/latest/meta-data")).await;
        assert_eq!(literally, no_answer(INSIDE), "{address}");
        let (sender, _) = looking_up(&[address], &[]);
        assert_eq!(sent(&sender, "https://metadata.example/").await, no_answer(INSIDE), "{address}");
    }
}

#[tokio::test]
async fn a_host_of_which_one_address_leads_inside_is_not_connected() {
    let resolver: Resolver = Arc::new(|_, port| {
        let found = ["8.8.8.8", "10.0.0.5"].map(|address| SocketAddr::new(address.parse().unwrap(), port));
        Box::pin(async move { Ok(found.to_vec()) })
    });
    let sender = Sender::over(Connector::with_resolver(&[], resolver), None);
    assert_eq!(sent(&sender, "https://hooks.example/").await, no_answer(INSIDE));
}

#[tokio::test]
async fn a_name_is_looked_up_once_and_the_judged_address_is_connected() {
    let receiver = Receiver::answers(OK).await;
    // The first lookup returns an allowed address, and every later lookup returns an internal address. Nothing answers
    // at the first address.
    let allowed: Network = "192.0.2.0/24".parse().unwrap();
    let (sender, asked) = looking_up(&["192.0.2.1", "127.0.0.1"], &[allowed]);
    let url = format!("https://hooks.example:{}/", receiver.address.port());
    assert_eq!(sent(&sender, &url).await, no_answer("cannot connect"));
    let connections = receiver.connections.load(Ordering::SeqCst);
    assert_eq!((asked.load(Ordering::SeqCst), connections), (1, 0));
}

#[tokio::test]
async fn a_certificate_must_name_the_host() {
    for (name, expected) in [
        ("127.0.0.1", ReceiverAnswer::Status(200)),
        ("127.0.0.2", no_answer("cannot establish a TLS connection")),
        ("hooks.example", no_answer("cannot establish a TLS connection")),
    ] {
        let tls = tls_for(name);
        let receiver = Receiver::start(Some(tls.clone()), |_| OK).await;
        let sender = Sender::over(Connector::new(&[]), Some(tls.client()));
        assert_eq!(sent(&sender, &format!("https://{}/", receiver.address)).await, expected, "{name}");
        let strange = sent(&Sender::new(&[]), &format!("https://{}/", receiver.address)).await;
        assert_eq!(
            strange,
            no_answer("cannot establish a TLS connection"),
            "of an authority that is not trusted"
        );
    }
}

/// Returns TLS settings with a certificate for this name, and trust in the authority that signed it.
fn tls_for(name: &str) -> MutualTls {
    let authority = Authority::new();
    let Issued { certificate, key } = authority.issue(name);
    let pem = |text: String| Pem::new("TLS", "file.pem", text.into());
    MutualTls::new(pem(certificate), pem(key), pem(authority.pem())).unwrap()
}
