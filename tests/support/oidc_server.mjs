// An MCP server that wants a sign-in, and npm's oidc-provider beside it, in one process on loopback.
//
//     node oidc_server.mjs FOLDER [JWK [RESOURCE [OPAQUE]]]
//
// FOLDER has node_modules with oidc-provider. JWK: the public key of the client `robot`, as JSON, or "". RESOURCE: an
// address beside the MCP server's for which it issues JWTs with scope `mcp`, and `groups` for people; whoever holds one
// may have it traded (RFC 8693) by the client `foretool`, which is also registered for consents that come back to the
// host of RESOURCE. OPAQUE: another such address, whose tokens are no JWTs but can be asked about (RFC 7662). The first
// line it prints is the URL of the MCP server, which has the tools `read` (scope read) and `write` (scope write), and
// `who`, which names the token's person and client, where there is a RESOURCE. Nobody has to click: it agrees to
// everything that a link asks for. `POST /admin` changes what it does, and says what it did:
//
//     {"forget": "access"}  access tokens are no longer valid
//     {"forget": "all"}     refresh tokens neither
//     {"lifetime": 5}       seconds that new access tokens live
//     {}                    counts of what happened

import { createServer } from "node:http";
import { once } from "node:events";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [folder, jwk, other, opaque] = process.argv.slice(2);
const entry = join(folder, "node_modules", "oidc-provider", "lib", "index.js");
const { default: Provider, errors } = await import(pathToFileURL(entry));
const { createRemoteJWKSet, jwtVerify } = await import(
  pathToFileURL(join(folder, "node_modules", "jose", "dist", "webapi", "index.js"))
);

const server = createServer();
server.listen(0, "127.0.0.1");
await once(server, "listening");
const base = `http://127.0.0.1:${server.address().port}`;
const resource = `${base}/mcp`;
const counts = { register: 0, code: 0, refresh: 0, machine: 0, exchange: 0, introspect: 0, revoke: 0, refused: 0 };
const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const saved = { AccessToken: new Set(), RefreshToken: new Set(), ClientCredentials: new Set() };
let lifetime = 3600;

const machine = { grant_types: ["client_credentials"], redirect_uris: [], response_types: [] };
const clients = [{ ...machine, client_id: "machine", client_secret: "s3cret-word-of-the-machine" }];
if (other) {
  clients.push({
    client_id: "foretool",
    client_secret: "s3cret/of:the trader",
    grant_types: ["authorization_code", "refresh_token", EXCHANGE],
    redirect_uris: [new URL("/connect/callback", other).href],
    response_types: ["code"],
  });
}
if (jwk) {
  const robot = { client_id: "robot", token_endpoint_auth_method: "private_key_jwt", jwks: { keys: [JSON.parse(jwk)] } };
  clients.push({ ...machine, ...robot });
}

const provider = new Provider(base, {
  clients,
  clientAuthMethods: ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
  cookies: { keys: ["a key of this test"] },
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    introspection: {
      enabled: true,
      allowedPolicy: (_, client) => {
        counts.introspect += 1;
        return client.clientId === "foretool";
      },
    },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, indicator) => {
        if (indicator === other) {
          return { scope: "mcp", audience: other, accessTokenTTL: lifetime, accessTokenFormat: "jwt" };
        }
        if (indicator === opaque) {
          return { scope: "mcp", audience: opaque, accessTokenTTL: lifetime, accessTokenFormat: "opaque" };
        }
        if (indicator !== resource) throw new Error(`no such resource: ${indicator}`);
        return { scope: "read write", audience: resource, accessTokenTTL: lifetime, accessTokenFormat: "opaque" };
      },
    },
    revocation: { enabled: true },
  },
  extraTokenClaims: (_, token) =>
    [other, opaque].includes(token.aud) && token.accountId ? { groups: ["developers"] } : undefined,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  issueRefreshToken: () => true,
  pkce: { required: () => true },
  rotateRefreshToken: true,
  scopes: ["read", "write", "mcp"],
  ttl: { ClientCredentials: () => lifetime, Grant: 3600, Interaction: 60, RefreshToken: 3600, Session: 3600 },
});
// What the authorization server lacks: the subject token is one of its own JWTs for RESOURCE, and the new one is for the
// MCP server alone.
const keys = createRemoteJWKSet(new URL(`${base}/jwks`));
async function exchange(ctx) {
  const { client, params } = ctx.oidc;
  const subject = await jwtVerify(params.subject_token, keys, { issuer: base, audience: other }).catch(() => undefined);
  if (!subject || params.subject_token_type !== "urn:ietf:params:oauth:token-type:access_token") {
    throw new errors.InvalidGrant("the subject token is not valid");
  }
  if (params.resource !== resource) throw new errors.InvalidTarget();
  const grant = new provider.Grant({ accountId: subject.payload.sub, clientId: client.clientId });
  grant.addResourceScope(resource, params.scope);
  const token = new provider.AccessToken({
    accountId: subject.payload.sub, client, grantId: await grant.save(), gty: "token_exchange", scope: params.scope,
  });
  token.resourceServer = new provider.ResourceServer(resource, {
    scope: "read write", audience: resource, accessTokenTTL: lifetime, accessTokenFormat: "opaque",
  });
  ctx.oidc.entity("AccessToken", token);
  ctx.body = {
    access_token: await token.save(), expires_in: token.expiration, token_type: token.tokenType, scope: token.scope,
    issued_token_type: "urn:ietf:params:oauth:token-type:access_token",
  };
}
provider.registerGrantType(EXCHANGE, exchange, [
  "subject_token", "subject_token_type", "requested_token_type", "resource", "audience", "scope",
]);
provider.on("registration_create.success", () => (counts.register += 1));
provider.on("grant.success", ({ oidc }) => {
  const names = { authorization_code: "code", refresh_token: "refresh", client_credentials: "machine", [EXCHANGE]: "exchange" };
  counts[names[oidc.params.grant_type]] += 1;
});
provider.on("server_error", (_, error) => console.error(error));
for (const [event, kind] of [["access_token", "AccessToken"], ["refresh_token", "RefreshToken"], ["client_credentials", "ClientCredentials"]]) {
  provider.on(`${event}.saved`, (token) => saved[kind].add(token.jti));
  provider.on(`${event}.destroyed`, () => (counts.revoke += 1));
}

async function agree(request, response) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    const result = { login: { accountId: "ann" } };
    return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
  }
  const known = grantId ? await provider.Grant.find(grantId) : undefined;
  const grant = known ?? new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  if (prompt.details.missingOIDCScope) grant.addOIDCScope(prompt.details.missingOIDCScope.join(" "));
  for (const [indicator, scopes] of Object.entries(prompt.details.missingResourceScopes ?? {})) {
    grant.addResourceScope(indicator, scopes.join(" "));
  }
  const result = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
}

function send(response, status, body, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(body === undefined ? "" : JSON.stringify(body));
}

async function read(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return pieces.length ? JSON.parse(Buffer.concat(pieces)) : {};
}

function challenge(response, status, more) {
  counts.refused += 1;
  const metadata = `${base}/.well-known/oauth-protected-resource/mcp`;
  const parts = Object.entries({ ...more, resource_metadata: metadata }).map(([key, value]) => `${key}="${value}"`);
  send(response, status, { error: "no" }, { "www-authenticate": `Bearer ${parts.join(", ")}` });
}

async function serve(request, response) {
  const shown = (request.headers.authorization ?? "").replace(/^Bearer /, "");
  const token = (await provider.AccessToken.find(shown)) ?? (await provider.ClientCredentials.find(shown));
  if (!token || token.isExpired || token.aud !== resource) return challenge(response, 401, { scope: "read" });
  if (request.method !== "POST") return send(response, 405);
  const { id, method, params = {} } = await read(request);
  if (id === undefined) return send(response, 202);
  const scopes = (token.scope ?? "").split(" ");
  if (method === "tools/call" && params.name === "write" && !scopes.includes("write")) {
    return challenge(response, 403, { error: "insufficient_scope", scope: "write" });
  }
  const who = `${token.accountId} by ${token.clientId}`;
  const tool = (name) => ({ name, inputSchema: { type: "object" } });
  const results = {
    initialize: { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "guarded", version: "1" } },
    "tools/list": { tools: ["read", "write", ...(other ? ["who"] : [])].map(tool) },
    "tools/call": { content: [{ type: "text", text: `${params.name}: ${params.name === "who" ? who : scopes.join(" ")}` }] },
  };
  if (!(method in results)) return send(response, 200, { jsonrpc: "2.0", id, error: { code: -32601, message: "no" } });
  return send(response, 200, { jsonrpc: "2.0", id, result: results[method] });
}

async function admin(request, response) {
  const wanted = await read(request);
  lifetime = wanted.lifetime ?? lifetime;
  const kinds = wanted.forget === "all" ? Object.keys(saved) : wanted.forget ? ["AccessToken", "ClientCredentials"] : [];
  for (const kind of kinds) {
    for (const id of saved[kind]) await (await provider[kind].find(id))?.destroy();
  }
  send(response, 200, counts);
}

const callback = provider.callback();
server.on("request", (request, response) => {
  const { pathname } = new URL(request.url, base);
  if (pathname === "/mcp") return serve(request, response);
  if (pathname === "/admin") return admin(request, response);
  if (pathname.startsWith("/interaction/")) return agree(request, response);
  if (pathname === "/.well-known/oauth-protected-resource/mcp") {
    return send(response, 200, { resource, authorization_servers: [base], scopes_supported: ["read", "write"] });
  }
  return callback(request, response);
});
console.log(resource);
