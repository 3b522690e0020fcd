"""An MCP server over HTTPS that lets in only who shows a certificate of its own authority.

    python tls_upstream.py FOLDER

FOLDER gets `ca.pem`, the certificate `client.pem` with `client.key`, and `stranger.pem` (with its key) of another
authority. The first line it prints is the URL. Its tool `whoami` answers with the name in the client's certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

Key = ec.EllipticCurvePrivateKey


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def certificate(subject: str, key: Key, issuer: str, signer: Key, *, is_authority: bool = False) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    )
    if is_authority:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)


def private(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_all(folder: Path) -> None:
    ca, other, server, client, stranger = (ec.generate_private_key(ec.SECP256R1()) for _ in range(5))
    (folder / "ca.pem").write_bytes(certificate("authority", ca, "authority", ca, is_authority=True))
    (folder / "server.pem").write_bytes(certificate("server", server, "authority", ca) + private(server))
    (folder / "client.pem").write_bytes(certificate("the robot", client, "authority", ca))
    (folder / "client.key").write_bytes(private(client))
    (folder / "stranger.pem").write_bytes(certificate("stranger", stranger, "another", other) + private(stranger))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.connection, ssl.SSLSocket)
        shown = dict(each[0] for each in (self.connection.getpeercert() or {}).get("subject", ()))  # type: ignore[misc]
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": f"you are {shown.get('commonName')}"}]},
        }
        body = b""
        if "id" in message:
            known = results.get(message["method"])
            answer = {"result": known} if known is not None else {"error": {"code": -32601, "message": "no"}}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode()
        self.send_response(200 if body else 202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, *_: object) -> None: ...


def main() -> None:
    folder = Path(sys.argv[1])
    write_all(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(f"https://127.0.0.1:{server.server_address[1]}/mcp", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
