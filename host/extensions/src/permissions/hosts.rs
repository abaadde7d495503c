//! Patterns of hosts, and the URLs that they are held against. Both go through the
//! `url` crate, so that every spelling of a host is the same host.

use std::net::{Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

#[derive(Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    /// Any name below this one.
    Below(String),
    Name(String),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

#[derive(Debug, PartialEq, Eq)]
enum Ports {
    /// 443 for `https`, 80 for `http`.
    Default,
    Any,
    One(u16),
}

#[derive(Debug)]
pub(super) struct HostPattern {
    hosts: Hosts,
    ports: Ports,
}

impl HostPattern {
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        let (host, port) = split_port(pattern)?;
        let ports = match port {
            None => Ports::Default,
            Some("*") => Ports::Any,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                match digits.parse() {
                    Ok(port) if port > 0 => Ports::One(port),
                    _ => return Err(format!("the port {digits:?} is not 1 to 65535")),
                }
            }
            Some(other) => return Err(format!("the port {other:?} is no number and no `*`")),
        };
        let hosts = match host.strip_prefix('*') {
            Some("") => Hosts::Any,
            Some(rest) => match rest.strip_prefix('.').map(host_of) {
                Some(Ok(Host::Domain(name))) => Hosts::Below(name),
                Some(Err(problem)) => return Err(problem),
                Some(Ok(_)) => return Err("`*.` stands before a name, not an address".to_owned()),
                None => return Err("`*` stands alone, or as `*.` before a name".to_owned()),
            },
            None => match host_of(host)? {
                Host::Domain(name) => Hosts::Name(name),
                Host::Ipv4(address) => Hosts::V4(address),
                Host::Ipv6(address) => Hosts::V6(address),
            },
        };
        Ok(Self { hosts, ports })
    }

    pub(super) fn matches(&self, url: &Url) -> bool {
        let host = match (&self.hosts, url.host()) {
            (_, None) => false,
            (Hosts::Any, Some(_)) => true,
            (Hosts::Below(parent), Some(Host::Domain(name))) => {
                let above = undotted(name).strip_suffix(parent.as_str());
                above.and_then(|above| above.strip_suffix('.')).is_some_and(|own| !own.is_empty())
            }
            (Hosts::Name(granted), Some(Host::Domain(name))) => undotted(name) == granted,
            (Hosts::V4(granted), Some(Host::Ipv4(address))) => *granted == address,
            (Hosts::V6(granted), Some(Host::Ipv6(address))) => *granted == address,
            (Hosts::Below(_) | Hosts::Name(_) | Hosts::V4(_) | Hosts::V6(_), Some(_)) => false,
        };
        host && match self.ports {
            // The parser leaves out the scheme's own port.
            Ports::Default => url.port().is_none(),
            Ports::Any => true,
            Ports::One(port) => url.port_or_known_default() == Some(port),
        }
    }

    /// Any host, or any below a top-level domain.
    pub(super) fn is_wide(&self) -> bool {
        match &self.hosts {
            Hosts::Any => true,
            Hosts::Below(parent) => !parent.contains('.'),
            Hosts::Name(_) | Hosts::V4(_) | Hosts::V6(_) => false,
        }
    }
}

/// `host`, and what follows its last `:` outside of brackets.
fn split_port(pattern: &str) -> Result<(&str, Option<&str>), String> {
    if pattern.starts_with('[') {
        let end = pattern.find(']').ok_or("a `[` has no `]`")? + 1;
        let (host, rest) = pattern.split_at(end);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(format!("{rest:?} follows the address")),
        };
    }
    match pattern.split_once(':') {
        None => Ok((pattern, None)),
        Some((_, port)) if port.contains(':') => {
            Err("it has several `:`; an IPv6 address stands in brackets".to_owned())
        }
        Some((host, port)) => Ok((host, Some(port))),
    }
}

/// The host in the form in which a URL has it.
fn host_of(text: &str) -> Result<Host<String>, String> {
    let is_foreign =
        |c: char| c.is_whitespace() || matches!(c, '*' | '%' | '/' | '\\' | '@' | '?' | '#');
    if let Some(c) = text.chars().find(|c| is_foreign(*c)) {
        return Err(format!("a host has no {c:?}"));
    }
    match Host::parse(text).map_err(|error| format!("{text:?} is no host: {error}"))? {
        Host::Domain(name) => match undotted(&name) {
            "" => Err("it names no host".to_owned()),
            name if name.split('.').any(str::is_empty) => {
                Err("it has two dots in a row".to_owned())
            }
            name => Ok(Host::Domain(name.to_owned())),
        },
        address => Ok(address),
    }
}

/// A name without the dot at its end: `example.org.` is the host `example.org`.
fn undotted(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Why a URL is not asked, whatever is granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("url is none: {0}")]
    Unparsable(url::ParseError),
    #[error("url has the scheme {0:?}; it may be http or https")]
    Scheme(String),
    #[error("url has a user or a password in it; send a header instead")]
    UserInfo,
}

/// A URL as it will be asked. `base`: the address that a redirect came from.
pub(crate) fn parse_url(text: &str, base: Option<&Url>) -> Result<Url, Refusal> {
    let mut url = Url::options().base_url(base).parse(text).map_err(Refusal::Unparsable)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refusal::Scheme(url.scheme().to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::UserInfo);
    }
    url.set_fragment(None);
    Ok(url)
}

/// The pattern that would allow a URL: its host, and its port where it is not the scheme's own.
pub(crate) fn pattern_for(url: &Url) -> String {
    let host = url.host_str().map(undotted).unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
