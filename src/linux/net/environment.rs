//! Variables that tell programs of the domain proxy.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Proxies by the scheme of what is fetched.
const HTTP: [&str; 4] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"];
/// For every other scheme: by HTTP, too, since some libraries fail at the sight of a proxy of SOCKS (Python's httpx
/// without socksio, requests without PySocks).
const OTHERS: [&str; 2] = ["ALL_PROXY", "all_proxy"];
/// What needs none: this host, which is reached without, or not at all.
const NONE: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The environment `env` with what programs need to know of a proxy at `port` of 127.0.0.1, if there is one. What
/// it says about other proxies is replaced: connections go out by those all the same. Git is told how ssh gets there if
/// `only` says that there is no other way.
pub fn with_proxy(mut env: Vec<OsString>, port: Option<u16>, only: bool) -> Vec<OsString> {
    let Some(port) = port else { return env };
    let name = |variable: &OsString| {
        let bytes = variable.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    let ours: Vec<&str> = HTTP.into_iter().chain(OTHERS).chain(NONE).collect();
    env.retain(|variable| !ours.contains(&name(variable).as_str()));
    let has = |wanted: &str| env.iter().any(|variable| name(variable) == wanted);
    // Node heeds the others from version 24 on, if this is set.
    let mut more = vec!["NODE_USE_ENV_PROXY=1".to_owned()];
    if only && !has("GIT_SSH_COMMAND") {
        let way = format!("nc -X connect -x 127.0.0.1:{port} %h %p");
        more.push(format!("GIT_SSH_COMMAND=ssh -o ProxyCommand='{way}'"));
    }
    let by_http = |name| format!("{name}=http://127.0.0.1:{port}");
    more.extend(HTTP.into_iter().chain(OTHERS).map(by_http));
    more.extend(NONE.map(|name| format!("{name}=localhost,127.0.0.1,::1")));
    env.retain(|variable| name(variable) != "NODE_USE_ENV_PROXY");
    env.extend(more.into_iter().map(OsString::from));
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_proxies_is_replaced() {
        let env = ["HTTPS_PROXY=http://else:1", "A=https_proxy=x", "GIT_SSH_COMMAND=mine"];
        let env = with_proxy(env.map(OsString::from).to_vec(), Some(7), true);
        let has = |text: &str| env.contains(&text.into());
        assert!(has("HTTPS_PROXY=http://127.0.0.1:7") && has("all_proxy=http://127.0.0.1:7"));
        assert!(has("A=https_proxy=x") && has("GIT_SSH_COMMAND=mine"));
        assert!(!has("HTTPS_PROXY=http://else:1"));
        let ssh = |env: &[OsString]| {
            env.iter().filter(|v| v.as_bytes().starts_with(b"GIT_SSH_COMMAND=")).count()
        };
        assert_eq!(ssh(&env), 1);
        assert_eq!(ssh(&with_proxy(Vec::new(), Some(7), true)), 1);
        assert_eq!(ssh(&with_proxy(Vec::new(), Some(7), false)), 0);
    }
}
