//! A web server over a folder that keeps a client waiting when it is told to.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use super::eventually;

/// The server. Its threads end with the process.
pub(super) struct Site {
    pub(super) url: String,
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    files: Mutex<Files>,
    released: Condvar,
}

#[derive(Default)]
struct Files {
    held: BTreeSet<String>,
    waiting: Vec<String>,
}

impl Site {
    pub(super) fn over(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let desk = Arc::<Desk>::default();
        let (root, served) = (folder.to_owned(), Arc::clone(&desk));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (root, desk) = (root.clone(), Arc::clone(&served));
                thread::spawn(move || serve(&stream, &root, &desk));
            }
        });
        Self { url, desk }
    }

    /// Answers no more requests for `path`, from now on.
    pub(super) fn hold(&self, path: &str) {
        self.desk.files.lock().unwrap().held.insert(path.to_owned());
    }

    /// Answers all who wait, and whoever comes.
    pub(super) fn release(&self) {
        let mut files = self.desk.files.lock().unwrap();
        files.held.clear();
        files.waiting.clear();
        drop(files);
        self.desk.released.notify_all();
    }

    /// Waits until somebody waits for `path`.
    #[track_caller]
    pub(super) fn await_asked(&self, path: &str) {
        eventually("the file is asked for", || {
            self.desk.files.lock().unwrap().waiting.iter().any(|waiting| waiting == path).then_some(())
        });
    }
}

/// A client that went away is none of the server's business.
fn serve(stream: &TcpStream, root: &Path, desk: &Desk) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.trim_start_matches('/').to_owned();
    lines.find(|line| line.as_ref().is_ok_and(String::is_empty))?.ok()?;
    let mut files = desk.files.lock().ok()?;
    if files.held.contains(&path) {
        files.waiting.push(path.clone());
        while files.held.contains(&path) {
            files = desk.released.wait(files).ok()?;
        }
    }
    drop(files);
    let found: PathBuf = root.join(&path);
    let (status, body) = match std::fs::read(found) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len())
        .ok()?;
    stream.write_all(&body).ok()
}
