//! Redis as a backend: the cases of the suite run over a server of their own.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use redis::{Client, Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection};
use tempfile::TempDir;

use super::{Carrier, Redis};
use crate::{
    records::{Failure, Index, Log, Record, Revision, Write},
    suite::{Subject, absent, name, record},
};

/// A server on a Unix socket, which ends with the value.
struct Server {
    process: Child,
    folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("redis.sock");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed: tests/tools/install.sh");
        Self { process, folder }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("redis.sock")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection to a server.
struct Direct(MultiplexedConnection);

impl Direct {
    async fn to(socket: &Path) -> Self {
        let client = Client::open(format!("unix://{}", socket.display())).unwrap();
        loop {
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => return Self(connection),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

#[async_trait]
impl Carrier for Direct {
    async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        command.query_async(&mut self.0.clone()).await
    }

    async fn ask_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        commands.query_async(&mut self.0.clone()).await
    }
}

/// An empty Redis.
pub(crate) async fn subject() -> Subject {
    let server = Server::start();
    let direct = Arc::new(Direct::to(&server.socket()).await);
    Subject::new(Redis::new(direct, "fg"), Some(Arc::new(server)))
}

/// Redis does not undo, so what would fail half-way fails before.
#[tokio::test]
async fn a_name_of_another_type_fails_before_anything_is_written() {
    let server = Server::start();
    let direct = Arc::new(Direct::to(&server.socket()).await);
    let subject = Subject::new(Redis::new(Arc::clone(&direct) as Arc<dyn Carrier>, "fg"), None);
    for name in ["fg:{suite}:i1", "fg:{suite}:l2"] {
        direct.ask(redis::cmd("SET").arg(name).arg("a text")).await.unwrap();
    }
    let put = Write::Put(name("one"), record("1"));
    let append = |log| Write::Append { log: Log(log), first: 1, values: vec![vec![1]], kept: 9 };
    let failing = [Write::Enter(Index(1), vec![1]), Write::Leave(Index(1), vec![1]), append(2)];
    for write in failing {
        let writes = [append(1), put.clone(), write.clone()];
        let failed = subject.try_commit(&[absent(&name("one"))], &writes).await;
        assert!(matches!(failed, Err(Failure::Damaged(_))), "{write:?}: {failed:?}");
        assert_eq!(subject.look_up(&[name("one")]).await, [None]);
    }
    let there: Value = direct.ask(redis::cmd("EXISTS").arg("fg:{suite}:l1")).await.unwrap();
    assert_eq!(there, Value::Int(0));
}

/// What is kept may be of another program.
#[tokio::test]
async fn bytes_that_are_no_record_are_damaged_and_nothing_panics() {
    let server = Server::start();
    let direct = Arc::new(Direct::to(&server.socket()).await);
    let subject = Subject::new(Redis::new(Arc::clone(&direct) as Arc<dyn Carrier>, "fg"), None);
    direct.ask(redis::cmd("HSET").arg("fg:{suite}:r1").arg("short").arg("x")).await.unwrap();
    let failed = subject.try_commit(&[absent(&name("short"))], &[]).await;
    assert!(matches!(failed, Err(Failure::Damaged(_))), "{failed:?}");
    let whole = Record::new(Revision([7; 8]), 9, b"text");
    direct.ask(redis::cmd("HSET").arg("fg:{suite}:r1").arg("whole").arg(whole.as_bytes())).await.unwrap();
    assert_eq!(subject.look_up(&[name("whole")]).await, [Some(whole)]);
}
