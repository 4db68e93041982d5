//! Requests of guests: decided by the grant, sent over HTTP/1.1, ended with the call.

use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep},
};
use wasmtime_wasi_http::{
    Error as HttpError, RequestOptions, Result as HttpResult, WasiBody, WasiHttpHooks,
    p2::bindings::http::types::ErrorCode as GuestError,
};

use super::{
    counters::Counters,
    flight::Passage,
    grant::{Destination, Grant, Refusal},
    guest_text,
    transport::{ConnectError, Transport},
};

/// The most of a request body that is taken at a time. Two of them wait in a request
/// that is never sent, and count for no memory limit.
const CHUNK_BYTES: usize = 16 << 10;
/// The longest response body.
const BODY_BYTES: u64 = 32 << 20;
/// Requests of one call at a time.
const REQUESTS: usize = 16;
/// Refusals of one call that are logged; all are counted.
const LOGGED_REFUSALS: u32 = 16;
const CONNECT: Duration = Duration::from_secs(10);
const FIRST_BYTE: Duration = Duration::from_secs(60);
const BETWEEN_BYTES: Duration = Duration::from_secs(30);

/// What drives a connection after its response has begun.
type Driver = Box<dyn Future<Output = Result<(), HttpError>> + Send>;

/// What all calls of one route share.
pub(crate) struct Gate {
    /// What may be reached.
    pub(crate) grant: Grant,
    /// How it is reached.
    pub(crate) transport: Arc<Transport>,
    /// Where refusals are counted.
    pub(crate) counters: Arc<Counters>,
    /// The connector, for the log.
    pub(crate) connector: Arc<str>,
}

/// The hooks of one call. Without a passage nothing leaves.
pub(crate) struct Egress {
    outbound: Arc<Outbound>,
    passage: Option<Passage>,
    deadline: Instant,
    requests: Arc<Semaphore>,
}

impl Egress {
    /// For a call inside `passage` that ends at `deadline`.
    pub(crate) fn new(gate: Arc<Gate>, passage: Option<Passage>, deadline: Instant) -> Self {
        Self {
            outbound: Arc::new(Outbound { gate, refusals: AtomicU32::new(0) }),
            passage,
            deadline,
            requests: Arc::new(Semaphore::new(REQUESTS)),
        }
    }
}

impl WasiHttpHooks for Egress {
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK_BYTES
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _outcome: Box<dyn Future<Output = Result<(), HttpError>> + Send>,
    ) -> Box<dyn Future<Output = HttpResult<(Response<WasiBody>, Driver)>> + Send> {
        let outbound = Arc::clone(&self.outbound);
        let passage = self.passage.clone();
        let slot = Arc::clone(&self.requests).try_acquire_owned();
        let patience = Patience::new(options.unwrap_or_default(), self.deadline);
        Box::new(async move {
            let decided = outbound.gate.grant.destination(request.method(), request.uri());
            let destination = decided.map_err(|refusal| outbound.refuse(&refusal))?;
            let Some(passage) = passage.filter(|passage| !passage.flight().is_fenced()) else {
                let refusal = Refusal { rule: "inactive", host: destination.host, address: None };
                return Err(outbound.refuse(&refusal));
            };
            let Ok(slot) = slot else { return Err(HttpError::ConnectionLimitReached) };
            let fenced = passage.flight().fenced().clone();
            tokio::select! {
                biased;
                () = fenced.cancelled() => Err(HttpError::ConnectionTerminated),
                answer = outbound.exchange(request, &destination, patience, passage, slot) => answer,
            }
        })
    }

    // What goes wrong is the guest's to know. The defaults would also log it, as
    // often as a guest likes.

    fn p2_error_from_hyper(&mut self, error: &hyper::Error) -> GuestError {
        if error.is_incomplete_message() {
            GuestError::HttpResponseIncomplete
        } else {
            GuestError::HttpProtocolError
        }
    }

    fn p2_error_from_connect(&mut self, error: &io::Error) -> GuestError {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => GuestError::ConnectionRefused,
            io::ErrorKind::TimedOut => GuestError::ConnectionTimeout,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
                GuestError::ConnectionTerminated
            }
            _ => GuestError::DestinationUnavailable,
        }
    }

    fn p2_error_from_tls(&mut self, error: &io::Error) -> GuestError {
        let certificate = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .is_some_and(|inner| matches!(inner, rustls::Error::InvalidCertificate(_)));
        if certificate { GuestError::TlsCertificateError } else { GuestError::TlsProtocolError }
    }
}

impl Gate {
    /// A gate that lets nothing out.
    pub(crate) fn shut(connector: Arc<str>, counters: Arc<Counters>) -> Self {
        Self { grant: Grant::default(), transport: Arc::default(), counters, connector }
    }
}

/// The requests of one call.
struct Outbound {
    gate: Arc<Gate>,
    refusals: AtomicU32,
}

impl Outbound {
    /// Counts and logs a refusal. The guest learns no more than that there was one.
    fn refuse(&self, refusal: &Refusal) -> HttpError {
        self.gate.counters.egress_refusals.count();
        if self.refusals.fetch_add(1, Ordering::Relaxed) < LOGGED_REFUSALS {
            tracing::warn!(
                connector.key = %self.gate.connector,
                egress.rule = refusal.rule,
                egress.host = guest_text::plain(&refusal.host, 255),
                egress.address = refusal.address.map(tracing::field::display),
                "a request of a connector was refused"
            );
        }
        HttpError::HttpRequestDenied
    }

    async fn exchange(
        &self,
        mut request: Request<WasiBody>,
        destination: &Destination,
        patience: Patience,
        passage: Passage,
        slot: OwnedSemaphorePermit,
    ) -> HttpResult<(Response<WasiBody>, Driver)> {
        let connect = self.gate.transport.connect(destination);
        let stream = match tokio::time::timeout(patience.connect, connect).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(ConnectError::Refused(refusal))) => return Err(self.refuse(&refusal)),
            Ok(Err(ConnectError::Failed(cause))) => return Err(cause),
            Err(_) => return Err(HttpError::ConnectionTimeout),
        };
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_headers(128)
            .max_buf_size(256 << 10)
            .handshake(TokioIo::new(stream))
            .await?;
        let hop_by_hop = [header::TE, header::TRAILER];
        for name in hop_by_hop.iter().chain(self.gate.grant.reserved_headers()) {
            request.headers_mut().remove(name);
        }
        let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        *request.uri_mut() = path.parse::<Uri>().map_err(|_| HttpError::HttpRequestUriInvalid)?;
        self.gate.counters.egress_requests.count();

        let mut connection = Box::pin(connection);
        let mut ended = false;
        let response = {
            let mut send = pin!(tokio::time::timeout(patience.first_byte, sender.send_request(request)));
            tokio::select! {
                biased;
                response = &mut send => response,
                outcome = &mut connection => {
                    outcome?;
                    ended = true;
                    send.await
                }
            }
        };
        let response = response.map_err(|_| HttpError::ConnectionReadTimeout)??;
        let fenced = passage.flight().fenced().clone();
        let driver = async move {
            let _held = (passage, slot);
            if !ended {
                tokio::select! {
                    biased;
                    () = fenced.cancelled() => {}
                    // Whoever reads the body is told what went wrong.
                    _ = connection => {}
                }
            }
            Ok(())
        };
        let response = response.map(|body| Bounded::new(body, patience.between_bytes).boxed_unsync());
        Ok((response, Box::new(driver)))
    }
}

/// How long each step may take: as the guest asks, within the host's limits and the call.
#[derive(Clone, Copy)]
struct Patience {
    connect: Duration,
    first_byte: Duration,
    between_bytes: Duration,
}

impl Patience {
    fn new(asked: RequestOptions, deadline: Instant) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        let within = |asked: Option<Duration>, limit: Duration| asked.unwrap_or(limit).min(limit).min(left);
        Self {
            connect: within(asked.connect_timeout, CONNECT),
            first_byte: within(asked.first_byte_timeout, FIRST_BYTE),
            between_bytes: within(asked.between_bytes_timeout, BETWEEN_BYTES),
        }
    }
}

/// A response body with a limit on its size and on its silence.
struct Bounded {
    body: hyper::body::Incoming,
    left: u64,
    silence: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Bounded {
    fn new(body: hyper::body::Incoming, silence: Duration) -> Self {
        Self { body, left: BODY_BYTES, silence, timer: Box::pin(tokio::time::sleep(silence)) }
    }
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let size = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(left) = self.left.checked_sub(size) else {
                    return Poll::Ready(Some(Err(HttpError::HttpResponseBodySize(Some(BODY_BYTES)))));
                };
                self.left = left;
                let next = Instant::now() + self.silence;
                self.timer.as_mut().reset(next);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(cause))) => Poll::Ready(Some(Err(cause.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                ready!(self.timer.as_mut().poll(context));
                Poll::Ready(Some(Err(HttpError::ConnectionReadTimeout)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
