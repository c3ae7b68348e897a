//! A gateway with one worker, on the thread of a simulation, without ports, threads or sockets.

use std::sync::Arc;

use axum::{body::Body, extract::Request, response::Response};
use shared_client::dial::Dial;
use shared_config::ConfigError;
use shared_door::serve::Handler;

use crate::{
    config::Options,
    generation::Generator,
    parts::{Core, GatewayParts},
};

/// A running gateway that is called directly.
pub struct SimulatedGateway {
    core: Core,
    generator: Arc<Generator>,
    handler: Handler,
}

impl SimulatedGateway {
    /// Starts the gateway on the entered runtime. `dial` makes all of its connections.
    pub fn start(options: &Options, parts: GatewayParts, dial: Arc<dyn Dial>) -> Result<Self, ConfigError> {
        let core = Core::new(options, parts, Some(dial))?;
        let (generator, handler) = core.worker();
        generator.holds.settle_spooled();
        Ok(Self { core, generator, handler })
    }

    /// Answers a request like the public port.
    pub fn answer(&self, request: Request) -> impl Future<Output = Response<Body>> + Send + use<> {
        self.handler.answer(request)
    }

    /// Ends the gateway as a crash would. Its tasks may continue, but write nothing to the spool; `dial` must already
    /// have cut their connections.
    pub fn crash(&self) {
        if let Some(spool) = &self.core.spool {
            spool.let_go();
        }
        self.core.close.cancel();
        self.core.cut.cancel();
        self.generator.keys.close();
    }
}
