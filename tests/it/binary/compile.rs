//! A component that is small and takes minutes to compile.

use std::{
    fmt::Write as _,
    fs, process,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    Daemon, eventually,
    shop::{Shop, echo, manifest},
};

/// The echo component with a module more, which nothing uses: one function, whose
/// many variables live through many loops.
fn bomb() -> Vec<u8> {
    let (variables, loops) = (2_000, 300);
    let mut text = "(module (func (local".to_owned();
    text += &" i32".repeat(variables);
    text.push(')');
    text += &" loop".repeat(loops);
    for variable in 0..variables {
        write!(text, " local.get {variable} i32.const 1 i32.add local.set {variable}").unwrap();
    }
    text += &" local.get 0 br_if 0 end".repeat(loops);
    for variable in 0..variables {
        write!(text, " local.get {variable} drop").unwrap();
    }
    text += "))";
    let module = wat::parse_str(text).unwrap();
    let mut component = echo();
    component.push(1);
    let mut length = module.len();
    while length > 0x7f {
        component.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    component.push(length as u8);
    component.extend(module);
    component
}

/// The processes that this daemon compiles in.
fn compilers(daemon: &Daemon) -> Vec<u32> {
    let parent = daemon.process.id();
    let children = format!("/proc/{parent}/task");
    let mut found = Vec::new();
    for task in fs::read_dir(children).into_iter().flatten().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
    }
    found
}

fn runs(pid: u32) -> bool {
    process::Command::new("sh")
        .args(["-c", "kill -0 \"$0\" 2>&-", &pid.to_string()])
        .status()
        .unwrap()
        .success()
}

#[test]
fn a_component_that_compiles_for_ever_holds_up_nothing_and_nobody() {
    let mut shop = Shop::with_echo();
    shop.offer_component("bomb", "1.0.0", &manifest(json!({}), &[]), &bomb());
    shop.publish();
    let mut daemon = Daemon::start(&["--catalog", shop.location()]);
    daemon.run(&["refresh"]).ok();
    let (status, accepted) = daemon.command("bomb", "install", "boom");
    assert_eq!(status, 202, "{accepted}");
    let [compiler] = eventually("it is compiled apart", || compilers(&daemon).try_into().ok());

    daemon.install("echo");
    assert_eq!(daemon.call("echo.echo", &json!({ "message": "x" })).0, 200);
    assert!(runs(compiler), "the bomb still compiles");

    daemon.terminate();
    let begun = Instant::now();
    let status = eventually("the process ends", || daemon.process.try_wait().unwrap());
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}\n{}", begun.elapsed(), daemon.log());
    eventually("its compiler is gone too", || (!runs(compiler)).then_some(()));
}
