//! A component out of an OCI registry: an artifact as the CNCF's "Wasm OCI artifact" page
//! has it, one layer of `application/wasm`. Registries are asked anonymously.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::StreamExt as _;
use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::manifest::{ImageIndexEntry, OciDescriptor, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use wharf_extensions::MAX_COMPONENT_BYTES;

use super::Fetched;

const LAYER: &str = "application/wasm";

const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// A registry that sends nothing for so long has gone.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// For the whole download.
const TIME_LIMIT: Duration = Duration::from_secs(15 * 60);

pub(super) async fn fetch(reference: &Reference) -> anyhow::Result<Fetched> {
    match tokio::time::timeout(TIME_LIMIT, pull(reference)).await {
        Ok(fetched) => fetched.with_context(|| format!("failed to fetch oci://{reference}")),
        Err(_) => bail!(
            "failed to fetch oci://{reference}: it took longer than {} minutes",
            TIME_LIMIT.as_secs() / 60
        ),
    }
}

async fn pull(reference: &Reference) -> anyhow::Result<Fetched> {
    // Err: something else in the process has installed one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = ClientConfig {
        protocol: protocol(reference.registry()),
        platform_resolver: Some(Box::new(wasm_entry)),
        connect_timeout: Some(CONNECT_LIMIT),
        read_timeout: Some(SILENCE_LIMIT),
        user_agent: concat!("wharf/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    };
    let client = Client::try_from(config).context("no HTTP client")?;
    let auth = RegistryAuth::Anonymous;
    let (manifest, digest) = client.pull_image_manifest(reference, &auth).await?;
    let layer = component_layer(&manifest)?;
    let mut stream = client.pull_blob_stream(reference, layer).await?;
    let mut component = Vec::new();
    // The stream fails at its end when the content has another digest.
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        let total = component.len() as u64 + piece.len() as u64;
        ensure!(total <= MAX_COMPONENT_BYTES, "it has more than {MAX_COMPONENT_BYTES} bytes");
        component.extend_from_slice(&piece);
    }
    Ok(Fetched { component, resolved: Some(digest) })
}

/// Plain HTTP on this machine only: nobody is in between.
fn protocol(registry: &str) -> ClientProtocol {
    let host = match registry.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => registry.split(':').next().unwrap_or_default(),
    };
    let address = host.parse::<IpAddr>();
    if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
        ClientProtocol::Http
    } else {
        ClientProtocol::Https
    }
}

/// Of an index of several platforms, the one that is WebAssembly.
fn wasm_entry(entries: &[ImageIndexEntry]) -> Option<String> {
    let is_wasm = |entry: &&ImageIndexEntry| {
        entry.platform.as_ref().is_some_and(|platform| platform.architecture.to_string() == "wasm")
    };
    entries.iter().find(is_wasm).map(|entry| entry.digest.clone())
}

fn component_layer(manifest: &OciImageManifest) -> anyhow::Result<&OciDescriptor> {
    let [layer] = &manifest.layers[..] else {
        bail!("it is no WASM artifact: it has {} layers, not one", manifest.layers.len());
    };
    ensure!(
        layer.media_type == LAYER,
        "it is no WASM artifact: its layer is {:?}, not {LAYER}",
        layer.media_type
    );
    ensure!(
        u64::try_from(layer.size).is_ok_and(|size| size <= MAX_COMPONENT_BYTES),
        "its component has {} bytes; the limit is {MAX_COMPONENT_BYTES}",
        layer.size
    );
    Ok(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_asked_in_plain_text() {
        for (registry, plain) in [
            ("localhost", true),
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("127.8.8.8", true),
            ("[::1]:5000", true),
            ("ghcr.io", false),
            ("localhost.example.org:5000", false),
            ("127.0.0.1.example.org", false),
            ("10.0.0.1:5000", false),
        ] {
            assert_eq!(protocol(registry) == ClientProtocol::Http, plain, "{registry}");
        }
    }

    #[test]
    fn one_small_enough_layer_of_wasm_is_taken() {
        let layer = |media_type: &str, size| OciDescriptor {
            media_type: media_type.to_owned(),
            digest: "sha256:0".to_owned(),
            size,
            ..OciDescriptor::default()
        };
        let good = layer(LAYER, 10);
        for (layers, expect) in [
            (vec![good.clone()], None),
            (vec![], Some("0 layers")),
            (vec![good.clone(), good], Some("2 layers")),
            (vec![layer("application/gzip", 10)], Some("application/gzip")),
            (vec![layer(LAYER, i64::MAX)], Some("the limit is")),
            (vec![layer(LAYER, -1)], Some("the limit is")),
        ] {
            let manifest = OciImageManifest { layers, ..OciImageManifest::default() };
            match (component_layer(&manifest), expect) {
                (Ok(_), None) => {}
                (Err(error), Some(expect)) => {
                    assert!(error.to_string().contains(expect), "{error}")
                }
                (result, expect) => panic!("{result:?} {expect:?}"),
            }
        }
    }
}
