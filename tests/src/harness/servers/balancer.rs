//! A load balancer in front of gateways. It passes connections to ready gateways.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::sleep,
};

use super::server::Server;
use crate::harness::{clients::client::Http, patience::LOOK_EVERY};

/// A balancer of TCP connections. It stops when dropped.
pub struct Balancer {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

/// A gateway, as the balancer sees it.
struct Backend {
    public: String,
    probe: String,
    ready: AtomicBool,
}

impl Balancer {
    /// Starts a balancer in front of these gateways, which probes each many times a second.
    pub async fn before(gateways: &[Server]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().unwrap();
        let backend = |gateway: &Server| Backend {
            public: gateway.public().trim_start_matches("http://").to_owned(),
            probe: format!("{}/readyz", gateway.admin()),
            ready: AtomicBool::new(true),
        };
        let backends: Arc<[Backend]> = gateways.iter().map(backend).collect();
        let probes = (0..backends.len()).map(|number| tokio::spawn(probe(backends.clone(), number)));
        let mut tasks: Vec<_> = probes.collect();
        tasks.push(tokio::spawn(accept(listener, backends)));
        Self { address, tasks }
    }

    /// Returns the base address of the installation behind the balancer.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn probe(backends: Arc<[Backend]>, number: usize) {
    let (http, backend) = (Http::new(), &backends[number]);
    loop {
        let request = http::Request::get(&backend.probe).body(http_body_util::Full::default()).unwrap();
        let answered = http.open(request).await;
        backend.ready.store(answered.is_ok_and(|answer| answer.status() == 200), Ordering::Relaxed);
        sleep(LOOK_EVERY).await;
    }
}

async fn accept(listener: TcpListener, backends: Arc<[Backend]>) {
    let turn = AtomicUsize::new(0);
    while let Ok((stream, _)) = listener.accept().await {
        let ready: Vec<_> = backends.iter().filter(|backend| backend.ready.load(Ordering::Relaxed)).collect();
        if ready.is_empty() {
            continue;
        }
        let backend = ready[turn.fetch_add(1, Ordering::Relaxed) % ready.len()].public.clone();
        tokio::spawn(pass(stream, backend));
    }
}

/// Forwards a connection in both directions until it ends.
pub(crate) async fn pass(mut client: TcpStream, backend: String) {
    let Ok(mut server) = TcpStream::connect(backend).await else { return };
    // Either side may leave at any time.
    let _ = client.set_nodelay(true).and(server.set_nodelay(true));
    let _ = copy_bidirectional(&mut client, &mut server).await;
}
