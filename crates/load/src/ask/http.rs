use http_body_util::{BodyExt, Empty, Limited};
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use super::stream;
use crate::settings::Url;

/// A page that is asked for again and again, over a connection that is kept.
#[derive(Debug)]
pub(crate) struct Page {
    url: Url,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Page {
    pub(super) fn new(url: &Url) -> Page {
        Page { url: url.clone(), connection: None }
    }

    /// Gets the page: status 200, and no longer than `bytes_max`.
    pub(super) async fn get(&mut self, bytes_max: usize) -> Result<Bytes, String> {
        let kept = match self.connection.take() {
            // It may have been closed since.
            Some(mut connection) => {
                self.send(&mut connection).await.ok().map(|response| (connection, response))
            }
            None => None,
        };
        let (connection, response) = match kept {
            Some(kept) => kept,
            None => {
                let mut connection = self.connect().await?;
                let response = self.send(&mut connection).await?;
                (connection, response)
            }
        };
        let status = response.status();
        if status != hyper::StatusCode::OK {
            return Err(format!("status {}", status.as_u16()));
        }
        let body = Limited::new(response.into_body(), bytes_max).collect().await;
        let page = body.map_err(|error| error.to_string())?.to_bytes();
        self.connection = Some(connection);
        Ok(page)
    }

    async fn connect(&self) -> Result<Connection, String> {
        let stream = stream::connect(&self.url.address).await?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| format!("HTTP: {error}"))?;
        let task = tokio::spawn(async move {
            // What is wrong with a connection is told to who asked.
            let _ = connection.await;
        });
        Ok(Connection { sender, task })
    }

    async fn send(&self, connection: &mut Connection) -> Result<Response<Incoming>, String> {
        connection.sender.ready().await.map_err(|error| format!("HTTP: {error}"))?;
        let request = hyper::Request::get(&self.url.path)
            .header("host", self.url.address.to_string())
            .header("user-agent", "evener-agent")
            .body(Empty::new())
            .map_err(|error| error.to_string())?;
        connection.sender.send_request(request).await.map_err(|error| format!("HTTP: {error}"))
    }
}
