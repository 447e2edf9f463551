"""The WSDL 1.1 of the broker's SOAP services, for clients that want one.

It describes the same messages that old clients send without it, with one
difference: each operation is in a namespace.  It does so in the wrapped
document/literal style and not as rpc, although what travels is the same,
because only there can ``domain`` be left out and ``urlList`` be a plain list.
"""

from __future__ import annotations

from string import Template
from xml.sax.saxutils import escape


def wsdl(rsscloud_url: str, weblog_updates_url: str) -> bytes:
    """The WSDL, in UTF-8.

    :param rsscloud_url: where the operations of ``rssCloud`` answer.
    :param weblog_updates_url: where those of ``weblogUpdates`` do; it may be
        the same URL.
    """
    quotes = {'"': "&quot;"}
    document = _TEMPLATE.substitute(
        rsscloud_url=escape(rsscloud_url, quotes),
        weblog_updates_url=escape(weblog_updates_url, quotes),
    )
    return document.encode("utf-8")


_TEMPLATE = Template("""\
<?xml version="1.0" encoding="utf-8"?>
<definitions name="rsscloud-broker"
    targetNamespace="urn:rsscloud-broker"
    xmlns="http://schemas.xmlsoap.org/wsdl/"
    xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap/"
    xmlns:xsd="http://www.w3.org/2001/XMLSchema"
    xmlns:tns="urn:rsscloud-broker"
    xmlns:cloud="urn:rsscloud-broker:rssCloud"
    xmlns:updates="urn:rsscloud-broker:weblogUpdates">

  <types>
    <xsd:schema targetNamespace="urn:rsscloud-broker:rssCloud">
      <xsd:element name="pleaseNotify">
        <xsd:complexType>
          <xsd:sequence>
            <xsd:element name="notifyProcedure" type="xsd:string"/>
            <xsd:element name="port" type="xsd:string"/>
            <xsd:element name="path" type="xsd:string"/>
            <xsd:element name="protocol" type="xsd:string"/>
            <xsd:element name="urlList" type="xsd:string" maxOccurs="unbounded"/>
            <xsd:element name="domain" type="xsd:string" minOccurs="0"/>
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
      <xsd:element name="pleaseNotifyResponse">
        <xsd:complexType>
          <xsd:sequence>
            <xsd:element name="Result" type="xsd:boolean"/>
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
      <xsd:element name="ping">
        <xsd:complexType>
          <xsd:sequence>
            <xsd:element name="url" type="xsd:string"/>
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
      <xsd:element name="pingResponse">
        <xsd:complexType>
          <xsd:sequence>
            <xsd:element name="Result" type="xsd:boolean"/>
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
    </xsd:schema>

    <xsd:schema targetNamespace="urn:rsscloud-broker:weblogUpdates">
      <xsd:complexType name="PingResult">
        <xsd:all>
          <xsd:element name="flerror" type="xsd:boolean"/>
          <xsd:element name="message" type="xsd:string"/>
        </xsd:all>
      </xsd:complexType>
      <xsd:element name="ping">
        <xsd:complexType>
          <xsd:sequence>
            <xsd:element name="weblogname" type="xsd:string"/>
            <xsd:element name="weblogurl" type="xsd:string"/>
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
      <xsd:element name="pingResponse">
        <xsd:complexType>
          <xsd:sequence>
            <xsd:element name="Result" type="updates:PingResult"/>
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
      <xsd:element name="extendedPing">
        <xsd:complexType>
          <xsd:sequence>
            <xsd:element name="weblogname" type="xsd:string"/>
            <xsd:element name="weblogurl" type="xsd:string"/>
            <xsd:element name="changesurl" type="xsd:string" minOccurs="0"/>
            <xsd:element name="rssurl" type="xsd:string" minOccurs="0"/>
            <xsd:element name="tags" type="xsd:string" minOccurs="0"/>
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
      <xsd:element name="extendedPingResponse">
        <xsd:complexType>
          <xsd:sequence>
            <xsd:element name="Result" type="updates:PingResult"/>
          </xsd:sequence>
        </xsd:complexType>
      </xsd:element>
    </xsd:schema>
  </types>

  <message name="cloudPleaseNotify">
    <part name="parameters" element="cloud:pleaseNotify"/>
  </message>
  <message name="cloudPleaseNotifyResponse">
    <part name="parameters" element="cloud:pleaseNotifyResponse"/>
  </message>
  <message name="cloudPing">
    <part name="parameters" element="cloud:ping"/>
  </message>
  <message name="cloudPingResponse">
    <part name="parameters" element="cloud:pingResponse"/>
  </message>
  <message name="updatesPing">
    <part name="parameters" element="updates:ping"/>
  </message>
  <message name="updatesPingResponse">
    <part name="parameters" element="updates:pingResponse"/>
  </message>
  <message name="updatesExtendedPing">
    <part name="parameters" element="updates:extendedPing"/>
  </message>
  <message name="updatesExtendedPingResponse">
    <part name="parameters" element="updates:extendedPingResponse"/>
  </message>

  <portType name="rssCloudPortType">
    <operation name="pleaseNotify">
      <documentation>Ask to be called when one of the feeds in urlList changes.</documentation>
      <input message="tns:cloudPleaseNotify"/>
      <output message="tns:cloudPleaseNotifyResponse"/>
    </operation>
    <operation name="ping">
      <documentation>Say that the feed at url has changed.</documentation>
      <input message="tns:cloudPing"/>
      <output message="tns:cloudPingResponse"/>
    </operation>
  </portType>
  <portType name="weblogUpdatesPortType">
    <operation name="ping">
      <documentation>Say that a site has changed.</documentation>
      <input message="tns:updatesPing"/>
      <output message="tns:updatesPingResponse"/>
    </operation>
    <operation name="extendedPing">
      <documentation>
        Say that a site has changed, and name the page, the feed and tags separated by |.
      </documentation>
      <input message="tns:updatesExtendedPing"/>
      <output message="tns:updatesExtendedPingResponse"/>
    </operation>
  </portType>

  <binding name="rssCloudBinding" type="tns:rssCloudPortType">
    <soap:binding style="document" transport="http://schemas.xmlsoap.org/soap/http"/>
    <operation name="pleaseNotify">
      <soap:operation soapAction="/rssCloud"/>
      <input><soap:body use="literal"/></input>
      <output><soap:body use="literal"/></output>
    </operation>
    <operation name="ping">
      <soap:operation soapAction="/rssCloud"/>
      <input><soap:body use="literal"/></input>
      <output><soap:body use="literal"/></output>
    </operation>
  </binding>
  <binding name="weblogUpdatesBinding" type="tns:weblogUpdatesPortType">
    <soap:binding style="document" transport="http://schemas.xmlsoap.org/soap/http"/>
    <operation name="ping">
      <soap:operation soapAction="/weblogUpdates"/>
      <input><soap:body use="literal"/></input>
      <output><soap:body use="literal"/></output>
    </operation>
    <operation name="extendedPing">
      <soap:operation soapAction="/weblogUpdates"/>
      <input><soap:body use="literal"/></input>
      <output><soap:body use="literal"/></output>
    </operation>
  </binding>

  <service name="rssCloud">
    <port name="rssCloud" binding="tns:rssCloudBinding">
      <soap:address location="$rsscloud_url"/>
    </port>
  </service>
  <service name="weblogUpdates">
    <port name="weblogUpdates" binding="tns:weblogUpdatesBinding">
      <soap:address location="$weblog_updates_url"/>
    </port>
  </service>
</definitions>
""")
