//! Files in OCI registries, in the form that `wkg oci push` and `oras push` give them: an image with
//! one layer of type `application/wasm`.

use std::io;
use std::time::Duration;

use corver_http::Host;
use futures_util::TryStreamExt;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::OciDescriptor;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, ParseError, Reference};

/// Media type of a WebAssembly file in an image.
const WASM: &str = "application/wasm";

/// Longest time of a fetch.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A failure to fetch a file from a registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The name of the image is invalid.
    #[error("the name of the image is invalid: {0}")]
    Name(#[from] ParseError),
    /// The name of the image begins with no registry. Other clients would then look it up in Docker's.
    #[error("it names no registry; the form is oci://REGISTRY/REPOSITORY[:TAG]")]
    NoRegistry,
    /// The registry refuses, or cannot be reached.
    #[error("the registry does not serve it: {0}")]
    Client(#[from] OciDistributionError),
    /// The image has no layer of type `application/wasm`, or several.
    #[error("the image has {0} layers of type {WASM}; a rule's image has one")]
    Layers(usize),
    /// The file is too large.
    #[error("the file has more than {0} bytes")]
    TooLarge(u64),
    /// The connection broke.
    #[error("the file did not arrive as a whole: {0}")]
    Io(#[from] io::Error),
    /// The registry took too long.
    #[error("the registry did not send the file within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Returns the WebAssembly file of an image, `REGISTRY/REPOSITORY[:TAG]`.
pub(crate) fn pull(image: &str, max_bytes: u64) -> Result<Vec<u8>, RegistryError> {
    let reference: Reference = image.parse()?;
    if image.split('/').next() != Some(reference.registry()) {
        return Err(RegistryError::NoRegistry);
    }
    // Only the first call has an effect; the one that the client of web servers has, too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(TIMEOUT, pull_file(&reference, max_bytes))
            .await
            .map_err(|_| RegistryError::Timeout)?
    })
}

async fn pull_file(reference: &Reference, max_bytes: u64) -> Result<Vec<u8>, RegistryError> {
    let registry = reference.registry();
    let is_loopback =
        Host::from_url(&format!("http://{registry}")).is_ok_and(|host| host.is_loopback());
    let protocol = if is_loopback { ClientProtocol::Http } else { ClientProtocol::Https };
    let client = Client::try_from(ClientConfig { protocol, ..ClientConfig::default() })?;
    let (manifest, _) = client.pull_image_manifest(reference, &RegistryAuth::Anonymous).await?;
    let layers: Vec<&OciDescriptor> =
        manifest.layers.iter().filter(|layer| layer.media_type == WASM).collect();
    let [layer] = layers[..] else { return Err(RegistryError::Layers(layers.len())) };
    let mut file = Vec::new();
    // The size in the manifest is a claim.
    let mut chunks = client.pull_blob_stream(reference, layer).await?;
    while let Some(chunk) = chunks.try_next().await? {
        if (file.len() + chunk.len()) as u64 > max_bytes {
            return Err(RegistryError::TooLarge(max_bytes));
        }
        file.extend_from_slice(&chunk);
    }
    Ok(file)
}
