//! The compiler in a process of its own: the limits it runs under, and both ends of
//! the line to it.
//!
//! What a compiler needs for a hostile component has no bound that wasmtime
//! promises, and a thread that compiles cannot be ended. A process can: the kernel
//! limits its CPU and memory, and it is killed when it takes too long or when nobody
//! waits for it any more.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
};

use super::{cache, engine::Engine, guest_text, settings::SandboxSettings};
use crate::domain::{
    digest::Sha256Digest,
    error::{Error, ErrorCode},
};

/// What is read of what the compiler says.
const SAID_BYTES: u64 = 16 << 10;

/// Sets the limits, then becomes the program. Address space is not limited: an
/// engine reserves far more of it than it ever uses.
const LIMITED: &str =
    r#"ulimit -c 0 && ulimit -t "$1" && ulimit -d "$2" && ulimit -f "$3" && shift 3 && exec "$@""#;

/// What one compilation may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// CPU time of all its threads.
    cpu_s: u64,
    /// Memory that it can write to.
    memory_mib: u64,
    /// The size of the code.
    code_mib: u64,
    /// How long it may take altogether.
    wall: Duration,
}

/// A component of an interpreted language is 20 MB, and well within these.
const LIMITS: Limits =
    Limits { cpu_s: 60, memory_mib: 2_048, code_mib: 1_024, wall: Duration::from_secs(90) };

/// Starts a limited process for each component.
#[derive(Debug)]
pub(crate) struct Compiler {
    program: PathBuf,
    limits: Limits,
}

impl Compiler {
    /// Compiles with `program`, which understands `compile-component`.
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, limits: LIMITS }
    }

    /// Compiles the component at `source`, which was verified under `digest`, for the
    /// engine of this `fingerprint`, to `out`. The process ends with the future.
    ///
    /// # Errors
    /// [`ErrorCode::ComponentInvalid`] when it is no component, or needs more than the
    /// limits; [`ErrorCode::ArtifactDigestMismatch`] when it is not the verified file;
    /// [`ErrorCode::Unavailable`] when this host cannot compile now.
    pub(crate) async fn compile(
        &self,
        source: &Path,
        digest: &Sha256Digest,
        fingerprint: &str,
        out: &Path,
    ) -> Result<(), Error> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", LIMITED, "sh"])
            .arg(self.limits.cpu_s.to_string())
            .arg((self.limits.memory_mib << 10).to_string())
            // In blocks of 512 bytes.
            .arg((self.limits.code_mib << 11).to_string())
            .arg(&self.program)
            .args(["--json", "compile-component", "--digest", &digest.to_string()])
            .args(["--engine", fingerprint, "--"])
            .args([source, out])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(not_started)?;
        let stderr = child.stderr.take();
        let ended = tokio::time::timeout(self.limits.wall, async {
            let said = read(stderr).await;
            child.wait().await.map(|status| (status, said))
        });
        match ended.await {
            Ok(Ok((status, said))) => self.judge(status, &said),
            Ok(Err(cause)) => Err(not_started(cause)),
            Err(_) => {
                if let Err(cause) = child.kill().await {
                    tracing::warn!(error = %cause, "a compiler that took too long could not be ended");
                }
                Err(self.over("it took too long"))
            }
        }
    }

    fn judge(&self, status: ExitStatus, said: &[u8]) -> Result<(), Error> {
        if status.success() {
            return Ok(());
        }
        if let Ok(said) = serde_json::from_slice::<Said>(said) {
            return Err(said.into());
        }
        tracing::warn!(%status, said = guest_text::plain(&String::from_utf8_lossy(said), 500), "a compiler failed");
        match (status.code(), status.signal()) {
            // The shell says these where a limit cannot be set or the program cannot
            // be started, and a program of another version where it knows no such command.
            (Some(1 | 2 | 126 | 127), _) => Err(not_started(status.to_string())),
            (_, Some(signal)) => Err(self.over(&format!("it was ended by signal {signal}"))),
            _ => Err(self.over("it failed")),
        }
    }

    fn over(&self, cause: &str) -> Error {
        let Limits { cpu_s, memory_mib, wall, .. } = self.limits;
        Error::new(
            ErrorCode::ComponentInvalid,
            format!(
                "the component cannot be compiled within the limits of this host ({cpu_s} s of CPU, {memory_mib} MiB of memory, {} s of time)",
                wall.as_secs()
            ),
        )
        .with_cause(cause.to_owned())
    }
}

fn not_started(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::unavailable(
        "the compiler cannot be run with its limits; if the program was replaced, restart the daemon",
    )
    .with_cause(cause)
}

/// The first of what is written there. Whoever writes more finds nobody reading.
async fn read(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut said = Vec::new();
    if let Some(from) = from
        && let Err(cause) = from.take(SAID_BYTES).read_to_end(&mut said).await
    {
        tracing::warn!(error = %cause, "a compiler cannot be heard");
    }
    said
}

/// A failure as the command line tells it.
#[derive(Deserialize)]
struct Said {
    code: ErrorCode,
    message: String,
    retryable: bool,
}

impl From<Said> for Error {
    fn from(said: Said) -> Self {
        Self::new(said.code, guest_text::plain(&said.message, guest_text::MESSAGE_BYTES))
            .with_retryable(said.retryable)
    }
}

/// Compiles the component at `source`, verified under `digest`, to `out`: the other
/// end, in the process that was started for it.
///
/// # Errors
/// As the sandbox's own; [`ErrorCode::Unavailable`] when this program's engine is not
/// the one of `fingerprint`.
pub fn compile_component(
    source: &Path,
    digest: &Sha256Digest,
    fingerprint: &str,
    out: &Path,
) -> Result<(), Error> {
    let bytes = cache::read_verified(source, digest)?;
    // Code does not depend on the size of the pool, and a whole pool's stacks would
    // count as memory of this process.
    let settings = SandboxSettings {
        pool_instances: 1,
        tick: Duration::from_millis(100),
        ..SandboxSettings::new(PathBuf::new())
    };
    let engine = Engine::new(&settings)?;
    if engine.fingerprint() != fingerprint {
        return Err(Error::unavailable(
            "the program that compiles is not the one that runs; restart the daemon",
        ));
    }
    let code = engine.wasmtime().precompile_component(&bytes).map_err(cache::not_compilable)?;
    fs::write(out, code).map_err(cache::not_written)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Command as Process, Stdio},
    };

    use tempfile::TempDir;

    use super::*;

    /// A compiler that is a script; `$out` is where the code would go.
    struct Script {
        folder: TempDir,
        limits: Limits,
    }

    impl Script {
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            // Another process writes it: a file that this one has open cannot be run.
            let mut writer = Process::new("sh")
                .args(["-c", "cat > \"$0\" && chmod 700 \"$0\""])
                .arg(folder.path().join("program"))
                .stdin(Stdio::piped())
                .spawn()
                .expect("a shell");
            let mut input = writer.stdin.take().expect("its input");
            write!(input, "#!/bin/sh\nfor out in \"$@\"; do :; done\n{text}\n").expect("the script");
            drop(input);
            assert!(writer.wait().expect("an end").success());
            Self { folder, limits: LIMITS }
        }

        fn out(&self) -> PathBuf {
            self.folder.path().join("out")
        }

        async fn run(&self) -> Result<(), Error> {
            let compiler = Compiler { program: self.folder.path().join("program"), limits: self.limits };
            compiler.compile(Path::new("source"), &Sha256Digest::of(b""), "engine", &self.out()).await
        }

        #[track_caller]
        fn over(refused: Result<(), Error>, cause: &str) {
            let error = refused.expect_err("a refusal");
            assert_eq!(error.code, ErrorCode::ComponentInvalid);
            assert!(!error.retryable);
            assert!(error.message.contains("within the limits of this host"), "{}", error.message);
            let told = error.cause.expect("a cause").to_string();
            assert!(told.contains(cause), "{told}");
        }
    }

    #[tokio::test]
    async fn what_computes_too_much_is_ended() {
        let mut script = Script::new("while :; do :; done");
        script.limits.cpu_s = 1;
        Script::over(script.run().await, "signal");
    }

    #[tokio::test]
    async fn what_takes_too_long_is_ended() {
        let mut script = Script::new("exec sleep 1000");
        script.limits.wall = Duration::from_millis(100);
        Script::over(script.run().await, "too long");
    }

    #[tokio::test]
    async fn a_crash_is_the_component_and_not_an_error_to_repeat() {
        Script::over(Script::new("kill -ABRT $$").run().await, "signal 6");
        Script::over(Script::new("echo panicked >&2; exit 101").run().await, "failed");
    }

    #[tokio::test]
    async fn it_runs_with_its_limits_and_nothing_of_this_environment() {
        let script = Script::new(
            r#"printf '{"code":"component_invalid","message":"%s %s %s %s %s","retryable":false}' \
                "$(ulimit -t)" "$(ulimit -d)" "$(ulimit -c)" "${HOME-homeless}" "${CARGO-free}" >&2; exit 4"#,
        );
        let error = script.run().await.expect_err("what it said");
        assert_eq!((error.code, error.retryable), (ErrorCode::ComponentInvalid, false));
        assert_eq!(error.message, "60 2097152 0 homeless free");
    }

    #[tokio::test]
    async fn what_it_says_is_bounded() {
        let script = Script::new("while :; do echo nothing but words; done >&2");
        let error = script.run().await.expect_err("a refusal");
        assert_eq!(error.code, ErrorCode::ComponentInvalid);
    }

    #[tokio::test]
    async fn a_compiler_that_cannot_be_started_is_not_the_component() {
        let script = Script::new("");
        fs::remove_file(script.folder.path().join("program")).expect("the program");
        let error = script.run().await.expect_err("a refusal");
        assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
    }

    #[tokio::test]
    async fn it_ends_when_nobody_waits_for_it() {
        let script = Script::new("echo $$ > \"$out.new\"; mv \"$out.new\" \"$out\"; exec sleep 1000");
        let started = async {
            while !script.out().exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = script.run() => panic!("it ended by itself: {ended:?}"),
            () = started => {}
        }
        let pid = fs::read_to_string(script.out()).expect("its id");
        let process = Path::new("/proc").join(pid.trim());
        let gone = async {
            while process.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.expect("it is gone");
    }
}
