//! Runs git, npm and cargo: without a terminal, for a bounded time, with bounded output.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

/// A download over a slow line, or a build.
const TIME_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Bytes of what a failed program says that are shown: its end.
const MAX_SAID: usize = 2000;

/// Runs a program to its end and gives what it writes to standard output, of which more
/// than `limit` bytes are an error.
pub(super) async fn output(mut command: Command, limit: u64) -> anyhow::Result<Vec<u8>> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{name} is not installed, and this kind of source needs it")
        }
        child => child.with_context(|| format!("failed to start {name}"))?,
    };
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        bail!("failed to read the output of {name}");
    };
    let run = async {
        let written = async {
            let mut bytes = Vec::new();
            stdout.take(limit + 1).read_to_end(&mut bytes).await?;
            if bytes.len() as u64 > limit {
                return Err(std::io::Error::other(format!("it writes more than {limit} bytes")));
            }
            Ok(bytes)
        };
        let (written, said, status) = tokio::try_join!(written, tail(stderr), child.wait())
            .with_context(|| format!("{name} failed"))?;
        if !status.success() {
            let said = String::from_utf8_lossy(&said);
            let said: Vec<String> = said.trim().lines().map(super::plain).collect();
            bail!("{name} failed ({status}): {}", said.join("\n"));
        }
        Ok(written)
    };
    match tokio::time::timeout(TIME_LIMIT, run).await {
        Ok(result) => result,
        Err(_) => bail!("{name} did not end within {} minutes", TIME_LIMIT.as_secs() / 60),
    }
}

/// Reads to the end, keeps the last bytes.
async fn tail(mut from: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(kept),
            count => kept.extend_from_slice(&buffer[..count]),
        }
        let excess = kept.len().saturating_sub(MAX_SAID);
        kept.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn output_is_given_and_failures_say_why() {
        assert_eq!(output(shell("echo hi"), 3).await.unwrap(), b"hi\n");
        for (command, limit, expect) in [
            (shell("echo hi"), 2, "more than 2 bytes"),
            (shell("yes"), 1000, "more than 1000 bytes"),
            (shell("echo no way >&2; exit 3"), 100, "sh failed (exit status: 3): no way"),
            (Command::new("no-such-program-here"), 100, "is not installed"),
        ] {
            let error = output(command, limit).await.unwrap_err();
            let error = crate::report::with_causes(&error);
            assert!(error.contains(expect), "{error}");
        }
    }

    #[tokio::test]
    async fn only_the_end_of_a_flood_is_kept() {
        let flood = shell("yes x | head -c 1000000 >&2; echo the end >&2; exit 1");
        let error = output(flood, 100).await.unwrap_err().to_string();
        assert!(error.len() < 5 * MAX_SAID && error.ends_with("the end"), "{}", error.len());
    }
}
