//! The disk of the embedded store is full. Nothing is lost or billed twice, and probes, metrics, alerts and the log
//! report it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use futures_util::future::join_all;
use tempfile::TempDir;
use tests::{
    harness::{Options, Server, Settings, Stack, cost_of, run_to_end},
    upstream::Script,
};

use crate::services::told::{assert_each_told_once, assert_fires, readiness, shows};

/// Environment variable that is set for a test process that may mount disks. The rest of the machine does not see these
/// disks.
const MOUNTS: &str = "FAREGATE_TEST_OWN_MOUNTS";

/// Size of the disk in MiB, and the size to which it is enlarged.
const SIZE: u32 = 16;
const ENLARGED: u32 = 64;

/// Number of requests that arrive while the disk has no space.
const REFUSED: usize = 10;

#[apply(fact)]
async fn a_store_whose_files_cannot_grow_refuses_and_goes_on_once_they_can() {
    let mut stack = Stack::start().await;
    stack.server().kill();
    let bounded = Settings { files_bounded: true, ..stack.server().settings().clone() };
    stack.gateways = vec![Server::start(&bounded).await];
    let (fill, enlarge) = (|| stack.server().bound_files(Some(1)), || stack.server().bound_files(None));
    // Alerts are not checked here. They would also depend on how full the machine's own disk is.
    fills_and_is_enlarged(&stack, fill, enlarge, None).await;
}

#[test]
fn a_disk_that_fills_is_told_and_goes_on_once_it_is_enlarged() {
    let inside = "stores::full_disk::on_a_small_disk";
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount"]);
    if !unshare.arg("true").status().is_ok_and(|status| status.success()) {
        println!("this machine lets no test mount: only the test with bounded files shows a full disk here");
        return;
    }
    let mut test = Command::new("unshare");
    test.args(["--map-root-user", "--mount", "--"]).arg(env::current_exe().unwrap());
    test.args(["--exact", inside, "--ignored", "--nocapture"]).env(MOUNTS, "1");
    let output = run_to_end(&mut test);
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && said[0].contains("1 passed"), "{}", said.concat());
}

#[apply(fact)]
#[ignore = "run by the test above where it may mount a disk"]
async fn on_a_small_disk() {
    assert!(env::var(MOUNTS).is_ok(), "run `a_disk_that_fills_is_told_and_goes_on_once_it_is_enlarged`");
    let disk = Disk::mount();
    let env = vec![("FAREGATE_DATA_DIR", disk.path().display().to_string())];
    let stack = Stack::with(Options { env, ..Options::default() }).await;
    let server = stack.server();
    let ratio = "keyservice_store_used_ratio";
    shows(&stack, server, ratio, |ratio| ratio > 0.0 && ratio < 0.6).await;
    assert_fires(&stack, &[]).await;
    disk.fill(0.75);
    shows(&stack, server, ratio, |ratio| ratio > 0.7 && ratio < 0.85).await;
    assert_fires(&stack, &["StoreFilling"]).await;
    disk.fill(0.93);
    shows(&stack, server, ratio, |ratio| ratio > 0.9).await;
    assert_fires(&stack, &["StoreFilling", "StoreNearlyFull"]).await;

    let fires = ["ChargesInMemoryAlone", "KeyServiceNotReady", "StoreFilling", "StoreNearlyFull"];
    fills_and_is_enlarged(&stack, || disk.fill(1.0), || disk.enlarge(), Some(&fires)).await;
    shows(&stack, server, ratio, |ratio| ratio < 0.6).await;
    assert_fires(&stack, &[]).await;
}

/// Fills the disk of a store while a stream runs, and later frees the space again. If alerts are given, exactly these
/// must fire meanwhile.
async fn fills_and_is_enlarged(
    stack: &Stack,
    fill: impl FnOnce(),
    enlarge: impl FnOnce(),
    fires: Option<&[&str]>,
) {
    let (server, key) = (stack.server(), stack.key().await);
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    readiness(stack, server, 200).await;
    let mut running = stack.call(&key, Script::tokens(12, 100).pace(20)).stream().await;
    running.read_tokens(5).await;
    let mark = server.log().len();

    fill();
    let said = readiness(stack, server, 503).await;
    assert!(said.text().contains("the store refuses writes"), "{said}");
    shows(stack, server, "keyservice_ready", |ready| ready < 0.5).await;
    shows(stack, server, "keyservice_store_up", |up| up > 0.5).await;
    assert!(running.rest().await.done, "what runs goes on");
    let calls = (0..REFUSED).map(|_| stack.call(&key, Script::tokens(12, 5)).send());
    for answer in join_all(calls).await {
        answer.assert_error(503, "service_unavailable");
    }
    if let Some(alerts) = fires {
        assert_fires(stack, alerts).await;
    }
    assert_each_told_once(server, mark, "ERROR not ready: the store refuses writes");

    enlarge();
    readiness(stack, server, 200).await;
    shows(stack, server, "gateway_captures_in_memory_alone", |captures| captures < 0.5).await;
    shows(stack, server, "gateway_spool_captures", |captures| captures < 0.5).await;
    assert_eq!(stack.call(&key, Script::tokens(12, 5)).send().await.status, 200);
    let billed = cost_of(12, 100).nanos() + 2 * cost_of(12, 5).nanos();
    assert_eq!(stack.used(&key).await.nanos(), billed, "nothing is lost or billed twice");
    let log = server.log();
    assert_eq!(log[mark..].matches("the store accepts writes again").count(), 1, "{log}");
}

/// A disk in memory. No other process on the machine sees it.
struct Disk(TempDir);

impl Disk {
    fn mount() -> Self {
        let disk = Self(TempDir::new().unwrap());
        mount(&["-t", "tmpfs", "-o", &format!("size={SIZE}m"), "tmpfs"], disk.path());
        disk
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn fill(&self, share: f64) {
        let used = || {
            let shown = Command::new("df").args(["--output=used", "-k"]).arg(self.path()).output().unwrap();
            let text = String::from_utf8(shown.stdout).unwrap();
            text.lines().nth(1).unwrap().trim().parse::<f64>().unwrap()
        };
        let wanted = share * f64::from(SIZE * 1024);
        let mut piece = 0_u32;
        while used() < wanted {
            let file: PathBuf = self.path().join(format!("other-{share}-{piece}"));
            if fs::write(file, vec![1; 64 << 10]).is_err() {
                return;
            }
            piece += 1;
        }
    }

    fn enlarge(&self) {
        mount(&["-o", &format!("remount,size={ENLARGED}m")], self.path());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Its folder is removed now. The disk itself disappears when the process ends, if not before.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

fn mount(arguments: &[&str], place: &Path) {
    let mounted = Command::new("mount").args(arguments).arg(place).status().unwrap();
    assert!(mounted.success(), "{arguments:?}");
}
