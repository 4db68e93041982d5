//! From the start of the process to the last route, after a kill, with a warm cache.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;

use super::{Bar, Row, daemon, guest};

pub(crate) const NAME: &str = "restart with 50 connectors, all active";

const CONNECTORS: usize = 50;

pub(crate) fn measure() -> Row {
    let folder = tempfile::tempdir().expect("a folder");
    let keys: Vec<String> = (0..CONNECTORS).map(|number| format!("echo-{number:02}")).collect();
    let catalog = guest::catalog_of_echoes(folder.path(), &keys);
    let data_dir = folder.path().join("data");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = daemon::Daemon::start(&data_dir, &catalog);
    runtime.block_on(async { daemon::install(&mut first.client().await, &keys).await });
    first.kill();
    let before = compiled(&data_dir);

    let start = Instant::now();
    let second = daemon::Daemon::start(&data_dir, &catalog);
    let measured = runtime.block_on(async {
        let mut client = second.client().await;
        loop {
            let routes = client.json("GET", "/v1/routes", &Value::Null).await;
            let active = routes["routes"]
                .as_array()
                .map_or(0, |routes| routes.iter().filter(|route| route["status"] == "active").count());
            if active == CONNECTORS {
                break start.elapsed();
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{active} of {CONNECTORS} routes are active");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let condition = if before.is_empty() {
        Err("nothing was compiled before the restart".to_owned())
    } else if compiled(&data_dir) == before {
        Ok(())
    } else {
        Err("a component was compiled again".to_owned())
    };
    Row { name: NAME, measured, reference: None, bar: Bar::Time(Duration::from_secs(1)), condition }
}

/// The compiled components, with when each was written.
fn compiled(data_dir: &Path) -> BTreeMap<String, SystemTime> {
    let mut found = BTreeMap::new();
    let mut folders = vec![data_dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "cwasm") {
                let written = entry.metadata().and_then(|about| about.modified()).expect("its time");
                found.insert(path.display().to_string(), written);
            }
        }
    }
    found
}
