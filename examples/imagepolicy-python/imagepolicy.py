"""A host with two hooks: images are named by digest, and a Pod without a team gets its namespace's. A beginning for hosts of your own."""

import argparse
import asyncio
import logging
import signal
import sys

from policy import new_host

from portcullis_host import Host, HostError, TLSFiles


def main() -> None:
    """Serves the hooks until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dispatchers", required=True, help="host:port of the dispatchers, separated by commas; each address of a name is one"
    )
    parser.add_argument("--cert", default="tls.crt", help="PEM file of our certificate, whose identity the HookRoute names")
    parser.add_argument("--key", default="tls.key", help="PEM file of its key")
    parser.add_argument("--ca", default="ca.crt", help="PEM file of the authorities of the dispatchers")
    parser.add_argument(
        "--ready-port", type=int, default=0, help="port that accepts connections once every hook is in rotation; 0 for none"
    )
    flags = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    errors: tuple[Exception, ...] = ()
    try:
        host = new_host(flags.dispatchers.split(","), TLSFiles(flags.cert, flags.key, flags.ca))
        asyncio.run(serve(host, flags.ready_port))
    except* (HostError, OSError) as group:  # An option is wrong, a file cannot be read, or calls were cut off.
        errors = group.exceptions
    if errors:
        sys.exit("\n".join(f"Error: {error}" for error in errors))


async def serve(host: Host, ready_port: int) -> None:
    """Serves the hooks, and the port for probes if there is one."""
    async with asyncio.TaskGroup() as tasks:
        probes = tasks.create_task(accept_probes(host, ready_port)) if ready_port else None
        await host.run(stop_on=[signal.SIGTERM, signal.SIGINT])
        if probes:
            probes.cancel()


async def accept_probes(host: Host, port: int) -> None:
    """Accepts connections once every hook is in rotation. A readiness probe with tcpSocket opens one."""
    await host.ready()
    server = await asyncio.start_server(lambda _, probe: probe.close(), port=port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    main()
