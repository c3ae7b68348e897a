//! A mail server on this machine that follows a script and keeps what it accepts.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

/// What the server does with a connection.
#[derive(Clone, Copy)]
pub(super) enum Mood {
    Accepts,
    /// It never sends anything.
    Hangs,
    /// It accepts mails, but does not answer `QUIT`.
    NeverEnds,
    /// It refuses the recipient with this status.
    Refuses(u16),
}

pub(super) struct MailServer {
    pub(super) address: SocketAddr,
    mails: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl MailServer {
    /// Starts a server that treats connection `n`, counted from zero, as `mood(n)` says.
    pub(super) async fn start(mood: fn(usize) -> Mood) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mails, connections) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicUsize>::default());
        let (kept, count) = (Arc::clone(&mails), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let kept = Arc::clone(&kept);
                tokio::spawn(async move {
                    // A client may leave at any time.
                    let _ = serve(stream, mood(number), &kept).await;
                });
            }
        });
        Self { address, mails, connections }
    }

    pub(super) fn url(&self) -> String {
        format!("smtp://{}", self.address)
    }

    /// Returns the accepted mails, each with its envelope.
    pub(super) fn mails(&self) -> Vec<String> {
        self.mails.lock().clone()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, mood: Mood, kept: &Mutex<Vec<String>>) -> std::io::Result<()> {
    if matches!(mood, Mood::Hangs) {
        std::future::pending::<()>().await;
    }
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 mail.example ESMTP\r\n").await?;
    let mut mail = String::new();
    let refused = if let Mood::Refuses(status) = mood { Some(status) } else { None };
    while let Some(line) = lines.next_line().await? {
        let answer = match line.split([' ', ':']).next().unwrap_or_default().to_uppercase().as_str() {
            "EHLO" => "250-mail.example\r\n250 8BITMIME\r\n".to_owned(),
            "RCPT" if refused.is_some() => format!("{} not here\r\n", refused.unwrap_or_default()),
            "MAIL" | "RCPT" => {
                mail.push_str(&line);
                mail.push('\n');
                "250 OK\r\n".to_owned()
            }
            "DATA" => {
                writer.write_all(b"354 go on\r\n").await?;
                while let Some(line) = lines.next_line().await?.filter(|line| line != ".") {
                    mail.push_str(&line);
                    mail.push('\n');
                }
                kept.lock().push(std::mem::take(&mut mail));
                "250 OK\r\n".to_owned()
            }
            "QUIT" if matches!(mood, Mood::NeverEnds) => std::future::pending().await,
            "QUIT" => {
                writer.write_all(b"221 bye\r\n").await?;
                return Ok(());
            }
            _ => "502 unknown\r\n".to_owned(),
        };
        writer.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}
