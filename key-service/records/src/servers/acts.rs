//! What tests do to the servers of a cluster or behind a Sentinel.

use std::net::TcpStream;

use super::{Cluster, RedisServer, Watched, must, whole_answer};

/// A slot that moves from one master of a cluster to the next one.
pub struct SlotMove<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl Cluster {
    /// Makes a user of every master.
    pub fn set_user(&self, user: &str) {
        self.masters.iter().for_each(|master| set_user(master, user));
    }

    /// Begins to move the slot of a name. The names in it go over one by one.
    pub fn begin_to_move(&self, name: &str) -> SlotMove<'_> {
        let slot = self.masters[0].ask(&format!("CLUSTER KEYSLOT {name}")).unwrap();
        let slot = slot.trim_start_matches(':').parse().unwrap();
        let from = usize::from(slot > 5_460) + usize::from(slot > 10_922);
        let moved = SlotMove { cluster: self, slot, from, to: (from + 1) % self.ports.len() };
        must(self.ports[moved.to], &format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from)));
        must(self.ports[from], &format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(moved.to)));
        moved
    }

    fn id(&self, master: usize) -> String {
        let stream = TcpStream::connect(("127.0.0.1", self.ports[master])).unwrap();
        whole_answer(stream, "CLUSTER MYID").lines().nth(1).unwrap().to_owned()
    }
}

impl SlotMove<'_> {
    /// Moves a name.
    pub fn name(&self, name: &str) {
        let to = self.cluster.ports[self.to];
        must(self.cluster.ports[self.from], &format!("MIGRATE 127.0.0.1 {to} {name} 0 5000"));
    }

    /// Tells all masters that the slot has moved.
    pub fn end(self) {
        let to = self.cluster.id(self.to);
        for master in [self.to, self.from, 3 - self.to - self.from] {
            must(self.cluster.ports[master], &format!("CLUSTER SETSLOT {} NODE {to}", self.slot));
        }
    }
}

impl Watched {
    /// Makes a user of both servers.
    pub fn set_user(&self, user: &str) {
        self.servers.iter().for_each(|server| set_user(server, user));
    }
}

fn set_user(server: &RedisServer, user: &str) {
    assert_eq!(server.ask(&format!("ACL SETUSER {user}")).as_deref(), Some("+OK"), "{user}");
}
