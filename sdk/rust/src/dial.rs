//! Connections to dispatchers.

use std::error::Error as StdError;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;
use tonic::codegen::http::Uri;
use tonic::transport::Channel;

use crate::dial_plan::Endpoint;
use crate::error::SessionError;
use crate::limits;
use crate::tls::{ALPN, Tls};

type BoxError = Box<dyn StdError + Send + Sync>;
type Connection = TokioIo<Either<TlsStream<TcpStream>, TcpStream>>;

/// Connects to one address. tonic's own configuration of TLS has no way to insist on version 1.3, so that rustls is
/// configured here.
pub(crate) async fn dial(at: &Endpoint, tls: &Tls) -> Result<Channel, SessionError> {
    let (at, tls) = (at.clone(), tls.config().map_err(SessionError::Tls)?);
    let connected = async {
        // No keepalive: the dispatcher's pings and the silence that Welcome names are the one clock of a session.
        let endpoint = endpoint(&at, tls.is_none())?;
        let connector = tower::service_fn(move |_: Uri| connect(at.clone(), tls.clone()));
        Ok(endpoint.connect_with_connector(connector).await?)
    };
    match tokio::time::timeout(limits::CONNECT, connected).await {
        Ok(connected) => connected.map_err(SessionError::Dial),
        Err(_) => Err(SessionError::NoWelcome),
    }
}

fn endpoint(at: &Endpoint, plaintext: bool) -> Result<tonic::transport::Endpoint, BoxError> {
    let scheme = if plaintext { "http" } else { "https" };
    let origin: Uri = format!("{scheme}://{}", at.address).parse()?;
    Ok(tonic::transport::Endpoint::from_shared(format!("http://{}", at.address))?
        .origin(origin)
        .initial_stream_window_size(limits::WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW))
}

async fn connect(at: Endpoint, tls: Option<Arc<ClientConfig>>) -> Result<Connection, BoxError> {
    let stream = TcpStream::connect(&at.address).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(TokioIo::new(Either::Right(stream))) };
    let name = ServerName::try_from(at.server_name)?;
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        return Err("the other side does not speak HTTP/2".into());
    }
    Ok(TokioIo::new(Either::Left(stream)))
}
