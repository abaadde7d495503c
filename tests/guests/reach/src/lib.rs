//! Reaches for what needs a grant, and shows what comes of it: `/reach WORDS..` shows
//! `ok: ..`, or the kind of the error and its text.
//!
//! - `read PATH`, `write PATH TEXT`, `list PATH`, `stat PATH`, `remove PATH`
//! - `fetch METHOD URL [NAME:VALUE..]`: status, address and the beginning of the body;
//!   `size URL`: bytes of the body and its largest piece; `keep URL`: never drops the body
//! - `exec PROGRAM ARGUMENTS..`, `exec-in CWD PROGRAM ARGUMENTS..`
//! - `env NAME`
//! - `data-write PATH TEXT`, `data-read PATH`: through WASI

mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "extension" });
}

use std::cell::RefCell;

use bindings::exports::wharf::extension::handlers::Guest;
use bindings::wharf::extension::files;
use bindings::wharf::extension::http::{self, Body, Request};
use bindings::wharf::extension::process::{self, ExecOptions};
use bindings::wharf::extension::types::{
    AccessError, CommandSpec, PermissionRequest, Registration,
};
use bindings::wharf::extension::ui::{self, NotifyKind};

thread_local! {
    static KEPT: RefCell<Vec<Body>> = const { RefCell::new(Vec::new()) };
}

struct Reach;

impl Guest for Reach {
    fn register() -> Registration {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Registration {
            id: "reach".to_owned(),
            version: "0.1.0".to_owned(),
            description: String::new(),
            commands: vec![CommandSpec {
                name: "reach".to_owned(),
                description: String::new(),
                argument_hint: None,
            }],
            tools: Vec::new(),
            subscriptions: Vec::new(),
            flags: Vec::new(),
            shortcuts: Vec::new(),
            permissions: vec![
                PermissionRequest::FsRead("docs/**".to_owned()),
                PermissionRequest::Net("*".to_owned()),
                PermissionRequest::Exec(words(&["sh", "-c", "**"])),
            ],
        }
    }

    async fn run_command(_name: String, arguments: String) -> Result<(), String> {
        let words: Vec<&str> = arguments.split(' ').collect();
        let shown = match run(&words).await {
            Ok(text) => format!("ok: {text}"),
            Err(AccessError::Denied(text)) => format!("denied: {text}"),
            Err(AccessError::Invalid(text)) => format!("invalid: {text}"),
            Err(AccessError::NotFound(text)) => format!("not-found: {text}"),
            Err(AccessError::Failed(text)) => format!("failed: {text}"),
            Err(AccessError::TimedOut(text)) => format!("timed-out: {text}"),
            Err(AccessError::Cancelled) => "cancelled".to_owned(),
        };
        ui::notify(&shown, NotifyKind::Info);
        Ok(())
    }
}

async fn run(words: &[&str]) -> Result<String, AccessError> {
    let of_wasi = |error: std::io::Error| AccessError::Failed(error.to_string());
    match words {
        ["read", path] => {
            let contents = files::read((*path).to_owned()).await?;
            Ok(String::from_utf8_lossy(&contents).into_owned())
        }
        ["write", path, text] => {
            files::write((*path).to_owned(), text.as_bytes().to_vec()).await?;
            Ok(String::new())
        }
        ["list", path] => {
            let entries = files::list_directory((*path).to_owned()).await?;
            let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            Ok(names.join(" "))
        }
        ["stat", path] => {
            let info = files::stat((*path).to_owned()).await?;
            Ok(info.size.to_string())
        }
        ["remove", path] => {
            files::remove((*path).to_owned()).await?;
            Ok(String::new())
        }
        ["fetch", method, url, headers @ ..] => {
            let response = fetch(method, url, headers).await?;
            let piece = response.body.read().await?.unwrap_or_default();
            Ok(format!("{} {} {}", response.status, response.url, String::from_utf8_lossy(&piece)))
        }
        ["size", url] => {
            let response = fetch("GET", url, &[]).await?;
            let (mut total, mut largest) = (0, 0);
            while let Some(piece) = response.body.read().await? {
                total += piece.len();
                largest = largest.max(piece.len());
            }
            Ok(format!("{total} {largest}"))
        }
        ["keep", url] => {
            let response = fetch("GET", url, &[]).await?;
            KEPT.with_borrow_mut(|kept| kept.push(response.body));
            Ok(String::new())
        }
        ["exec", program, arguments @ ..] => exec(program, arguments, None).await,
        ["exec-in", cwd, program, arguments @ ..] => {
            exec(program, arguments, Some((*cwd).to_owned())).await
        }
        ["env", name] => {
            let value = process::env((*name).to_owned()).await?;
            Ok(value.map_or("unset".to_owned(), |value| value.len().to_string()))
        }
        ["data-write", path, text] => {
            std::fs::write(path, text).map_err(of_wasi).map(|()| String::new())
        }
        ["data-read", path] => std::fs::read_to_string(path).map_err(of_wasi),
        _ => Err(AccessError::Invalid(format!("no such words: {words:?}"))),
    }
}

async fn fetch(method: &str, url: &str, headers: &[&str]) -> Result<http::Response, AccessError> {
    let headers = headers.iter().filter_map(|header| header.split_once(':'));
    let request = Request {
        method: method.to_owned(),
        url: url.to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        body: (method == "POST").then(|| b"body".to_vec()),
        timeout_ms: None,
    };
    http::fetch(request).await
}

async fn exec(
    program: &str,
    arguments: &[&str],
    cwd: Option<String>,
) -> Result<String, AccessError> {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let options = ExecOptions { cwd, timeout_ms: None, stdin: None };
    let output = process::exec(program.to_owned(), arguments, options).await?;
    Ok(format!("{:?} {}", output.exit_code, String::from_utf8_lossy(&output.stdout)))
}

bindings::export!(Reach with_types_in bindings);
