import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A real HTTP server for a test; its address becomes the page's base address. */
export async function serve(
  answer: (url: URL, response: ServerResponse, request: IncomingMessage) => void,
): Promise<{ base: string; close: () => Promise<void> }> {
  const server: Server = createServer((request, response) =>
    answer(new URL(request.url ?? "/", "http://localhost"), response, request),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/data/plugin/gpu_doctor/`;
  Object.assign(globalThis, { document: { baseURI: base } });
  return {
    base,
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

export function json(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}
